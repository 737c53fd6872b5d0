#pragma once

#include <arrow/array.h>
#include <arrow/memory_pool.h>
#include <arrow/type.h>
#include <parquet/file_reader.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gyre::data::parquet {

/// A column of lists of numbers that all have one length and no nulls, as volumes and embeddings are, in parts of
/// `rows_per_part`. `type`: of the column in Arrow's schema. Arrow's reader of nested columns needs more time to find
/// where lists begin and end than to decode their values; here that is only compared with what it has to be. Nothing
/// where a column is of another kind, or anything is wrong with it, which Arrow's reader then says better.
std::optional<std::vector<std::shared_ptr<arrow::Array>>> read_uniform_lists(
    ::parquet::ParquetFileReader& reader, const std::shared_ptr<arrow::DataType>& type, int row_group, int leaf,
    std::int64_t rows_per_part, arrow::MemoryPool* pool);

}  // namespace gyre::data::parquet
