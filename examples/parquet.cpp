// Parquet by Arrow C++: the row groups of files are parts, which workers load whole; batches mix
// rows of four. Prints how many rows there are, and the mean of each column. Columns of float,
// double, int32 and int64 become float; what is null becomes nan.
//   parquet FILE...
//   cc -O2 -c vendor/dlpipe.c -I..
//   c++ -std=c++20 -O2 parquet.cpp dlpipe.o $(pkg-config --cflags --libs parquet) -lpthread
#include "cpp/dlpipe.hpp"
#include <arrow/api.h>
#include <cmath>
#include <cstdio>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

struct row_group {
    const char *path;
    int number; // in its file
    std::shared_ptr<parquet::FileMetaData> metadata;
};
static void good(const arrow::Status &status, const char *path) {
    if (!status.ok()) throw std::runtime_error(path + (": " + status.message()));
}
template <class T> static bool copy(const arrow::Array &from, float *&to, int step) {
    if (from.type_id() != T::type_id) return false;
    const auto &numbers = static_cast<const arrow::NumericArray<T> &>(from);
    for (std::int64_t i = 0; i < from.length(); i++, to += step)
        *to = from.IsNull(i) ? NAN : static_cast<float>(numbers.Value(i));
    return true;
}
static void load(const row_group &g, float *rows, int n) { // as [rows][n columns]
    std::shared_ptr<arrow::Table> table;
    std::unique_ptr<parquet::arrow::FileReader> reader;
    parquet::arrow::FileReaderBuilder builder;
    good(builder.OpenFile(g.path, false, parquet::default_reader_properties(), g.metadata), g.path);
    good(builder.Build(&reader), g.path);
    good(reader->RowGroup(g.number)->ReadTable(&table), g.path);
    for (int c = 0; c < n; c++) {
        float *to = rows + c;
        for (const auto &x : table->column(c)->chunks()) // a copy moves `to` on
            if (!copy<arrow::FloatType>(*x, to, n) && !copy<arrow::DoubleType>(*x, to, n) &&
                !copy<arrow::Int32Type>(*x, to, n) && !copy<arrow::Int64Type>(*x, to, n))
                good(arrow::Status::TypeError(table->field(c)->name(), " is no number"), g.path);
    }
}
int main(int argc, char **argv) try {
    std::vector<row_group> groups;
    std::vector<std::uint64_t> rows;
    for (int i = 1; i < argc; i++) {
        const auto m = parquet::ParquetFileReader::OpenFile(argv[i])->metadata();
        if (!groups.empty() && m->num_columns() != groups[0].metadata->num_columns())
            good(arrow::Status::Invalid("other columns than in ", argv[1]), argv[i]);
        for (int g = 0; g < m->num_row_groups(); g++) {
            groups.push_back({argv[i], g, m});
            rows.push_back(static_cast<std::uint64_t>(m->RowGroup(g)->num_rows()));
        }
    }
    if (groups.empty()) return std::puts("parquet FILE..., with a row at least"), 1;
    const int columns = groups[0].metadata->num_columns();
    const std::size_t n = static_cast<std::size_t>(columns), row = n * sizeof(float);
    dlpipe::table t;
    t.desc.streams = groups.size() < 4 ? 1 : 4;
    t.list("row groups", groups.size())->list.shuffle = 1;
    auto loaded = t.load("load", *std::max_element(rows.begin(), rows.end()) * row, [&](auto part) {
        load(groups[part.index()], reinterpret_cast<float *>(part.room().data()), columns);
        part.set(rows[part.index()] * row);
    });
    loaded.workers(2)->load.items = rows.data();
    loaded->load.shuffle_items = 1;
    t.fetch("row", {dlpipe::field<float>("x", {columns})}, [&](dlpipe::item item) {
        std::memcpy(item.field<float>(0).data(),
                    item.part().bytes().data() + item.part().item() * row, row);
    });
    t.batch("batch", 64)->batch.last = DLP_LAST_PARTIAL;
    std::vector<double> sum(n);
    std::size_t x_seen = 0;
    for (dlpipe::batch &batch : t.open())
        for (float x : batch.field<float>("x").all()) sum[x_seen++ % n] += x;
    std::printf("%zu rows, means", x_seen / n);
    for (double s : sum) std::printf(" %g", s * double(n) / double(x_seen));
    std::puts("");
} catch (const std::exception &e) { return std::puts(e.what()), 1; }
