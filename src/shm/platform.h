#pragma once
/* tests: compile/matrix */
#include "base/platform.h"
#ifndef _GNU_SOURCE /* dlpipe.h has taken it back */
#define _GNU_SOURCE
#define DLPI_SHM_ASKED_GNU_SOURCE
#endif
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
