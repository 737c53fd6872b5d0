#include "gyre/data/parquet/uniform_lists.h"

#include <arrow/array/data.h>
#include <arrow/array/util.h>
#include <arrow/buffer.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace gyre::data::parquet {
namespace {

/// Levels and values that are decoded at once: they stay in the processor's caches.
constexpr std::int64_t kBatch = std::int64_t{1} << 14;
/// Shorter lists gain nothing.
constexpr std::int64_t kLeastLength = 16;
constexpr std::int64_t kMostPartValues = std::numeric_limits<std::int32_t>::max();

using Arrays = std::vector<std::shared_ptr<arrow::Array>>;

/// Buffers that are the same for all parts.
struct Scratch {
  std::shared_ptr<arrow::Buffer> definition;
  std::shared_ptr<arrow::Buffer> repetition;
  std::shared_ptr<arrow::Buffer> values;  ///< As the file has them.
};

struct Shape {
  std::shared_ptr<arrow::DataType> type;  ///< Of the column.
  std::int64_t rows = 0;
  std::int64_t length = 0;  ///< Of each list.
};

/// Whether `count` levels from value `position` of a column on say: lists of `length` values, none of them null.
bool as_expected(const std::int16_t* definition, const std::int16_t* repetition, std::int64_t count, std::int16_t full,
                 std::int64_t position, std::int64_t length) {
  int wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) wrong |= definition[i] ^ full;
  // A list begins at 0 and goes on with 1.
  std::int64_t ones = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    wrong |= repetition[i] & ~1;
    ones += repetition[i];
  }
  std::int64_t begins = 0;
  for (std::int64_t i = (length - position % length) % length; i < count; i += length, ++begins) wrong |= repetition[i];
  return wrong == 0 && ones == count - begins;
}

template <typename Physical, typename Value>
class Reader {
 public:
  using Stored = typename Physical::c_type;

  Reader(::parquet::ColumnReader& column, const Shape& shape, std::int16_t full_definition, const Scratch& scratch)
      : column_(static_cast<::parquet::TypedColumnReader<Physical>&>(column)),
        shape_(shape),
        full_(full_definition),
        definition_(scratch.definition->mutable_data_as<std::int16_t>()),
        repetition_(scratch.repetition->mutable_data_as<std::int16_t>()),
        stored_(scratch.values->mutable_data_as<Stored>()) {}

  /// The next `count` values; false where the column is not uniform.
  bool read(Value* into, std::int64_t count) {
    for (std::int64_t done = 0; done < count;) {
      constexpr bool kSame = sizeof(Value) == sizeof(Stored);
      Stored* const values = kSame ? reinterpret_cast<Stored*>(into + done) : stored_;
      std::int64_t found = 0;
      const std::int64_t levels =
          column_.ReadBatch(std::min(kBatch, count - done), definition_, repetition_, values, &found);
      if (levels <= 0 || found != levels) return false;
      if (!as_expected(definition_, repetition_, levels, full_, position_, shape_.length)) return false;
      if constexpr (!kSame) {
        for (std::int64_t i = 0; i < levels; ++i) into[done + i] = static_cast<Value>(stored_[i]);
      }
      done += levels;
      position_ += levels;
    }
    return true;
  }

 private:
  ::parquet::TypedColumnReader<Physical>& column_;
  const Shape& shape_;
  std::int16_t full_;
  std::int16_t* definition_;
  std::int16_t* repetition_;
  Stored* stored_;
  std::int64_t position_ = 0;
};

/// Lists around `values`.
arrow::Result<std::shared_ptr<arrow::Array>> lists_of(const Shape& shape, std::int64_t rows,
                                                      std::shared_ptr<arrow::Buffer> values, arrow::MemoryPool* pool) {
  const auto& value_type = static_cast<const arrow::BaseListType&>(*shape.type).value_type();
  auto child = arrow::ArrayData::Make(value_type, rows * shape.length, {nullptr, std::move(values)}, 0);
  std::vector<std::shared_ptr<arrow::Buffer>> buffers = {nullptr};
  if (shape.type->id() == arrow::Type::LIST) {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> offsets,
                          arrow::AllocateBuffer((rows + 1) * static_cast<std::int64_t>(sizeof(std::int32_t)), pool));
    auto* const offset = offsets->mutable_data_as<std::int32_t>();
    for (std::int64_t row = 0; row <= rows; ++row) offset[row] = static_cast<std::int32_t>(row * shape.length);
    buffers.push_back(std::move(offsets));
  }
  return arrow::MakeArray(arrow::ArrayData::Make(shape.type, rows, std::move(buffers), {std::move(child)}, 0));
}

template <typename Physical, typename Value>
arrow::Result<std::optional<Arrays>> read_as(::parquet::ColumnReader& column, const Shape& shape, std::int16_t full,
                                             std::int64_t rows_per_part, arrow::MemoryPool* pool) {
  Scratch scratch;
  const auto levels_bytes = kBatch * static_cast<std::int64_t>(sizeof(std::int16_t));
  ARROW_ASSIGN_OR_RAISE(scratch.definition, arrow::AllocateBuffer(levels_bytes, pool));
  ARROW_ASSIGN_OR_RAISE(scratch.repetition, arrow::AllocateBuffer(levels_bytes, pool));
  ARROW_ASSIGN_OR_RAISE(
      scratch.values,
      arrow::AllocateBuffer(kBatch * static_cast<std::int64_t>(sizeof(typename Physical::c_type)), pool));
  Reader<Physical, Value> reader(column, shape, full, scratch);
  Arrays arrays;
  for (std::int64_t row = 0; row < shape.rows; row += rows_per_part) {
    const std::int64_t rows = std::min(rows_per_part, shape.rows - row);
    const std::int64_t count = rows * shape.length;
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> values,
                          arrow::AllocateBuffer(count * static_cast<std::int64_t>(sizeof(Value)), pool));
    if (!reader.read(values->template mutable_data_as<Value>(), count)) return std::nullopt;
    ARROW_ASSIGN_OR_RAISE(auto array, lists_of(shape, rows, std::move(values), pool));
    arrays.push_back(std::move(array));
  }
  if (column.HasNext()) return std::nullopt;
  return arrays;
}

arrow::Result<std::optional<Arrays>> read_by_type(::parquet::ColumnReader& column, const Shape& shape,
                                                  std::int64_t rows_per_part, arrow::MemoryPool* pool) {
  const std::int16_t full = column.descr()->max_definition_level();
  const auto read = [&]<typename Physical, typename Value>(std::type_identity<std::pair<Physical, Value>> /*types*/) {
    return read_as<Physical, Value>(column, shape, full, rows_per_part, pool);
  };
  using ::parquet::Int32Type;
  const auto number = static_cast<const arrow::BaseListType&>(*shape.type).value_type()->id();
  switch (column.type()) {
    case ::parquet::Type::INT32:
      switch (number) {
        case arrow::Type::INT8: return read(std::type_identity<std::pair<Int32Type, std::int8_t>>());
        case arrow::Type::UINT8: return read(std::type_identity<std::pair<Int32Type, std::uint8_t>>());
        case arrow::Type::INT16: return read(std::type_identity<std::pair<Int32Type, std::int16_t>>());
        case arrow::Type::UINT16: return read(std::type_identity<std::pair<Int32Type, std::uint16_t>>());
        case arrow::Type::INT32:
        case arrow::Type::UINT32: return read(std::type_identity<std::pair<Int32Type, std::int32_t>>());
        default: return std::nullopt;
      }
    case ::parquet::Type::INT64:
      if (number != arrow::Type::INT64 && number != arrow::Type::UINT64) return std::nullopt;
      return read(std::type_identity<std::pair<::parquet::Int64Type, std::int64_t>>());
    case ::parquet::Type::FLOAT:
      if (number != arrow::Type::FLOAT) return std::nullopt;
      return read(std::type_identity<std::pair<::parquet::FloatType, float>>());
    case ::parquet::Type::DOUBLE:
      if (number != arrow::Type::DOUBLE) return std::nullopt;
      return read(std::type_identity<std::pair<::parquet::DoubleType, double>>());
    default: return std::nullopt;
  }
}

/// Nothing where it is no list of numbers, or its lists cannot be of one length.
std::optional<Shape> shape_of(::parquet::ParquetFileReader& reader, const std::shared_ptr<arrow::DataType>& type,
                              int row_group, int leaf) {
  const bool fixed = type->id() == arrow::Type::FIXED_SIZE_LIST;
  if (!fixed && type->id() != arrow::Type::LIST) return std::nullopt;
  const ::parquet::ColumnDescriptor& column = *reader.metadata()->schema()->Column(leaf);
  if (column.max_repetition_level() != 1) return std::nullopt;
  const auto group = reader.metadata()->RowGroup(row_group);
  const std::int64_t rows = group->num_rows();
  const std::int64_t values = group->ColumnChunk(leaf)->num_values();
  if (rows <= 0 || values <= 0 || values % rows != 0) return std::nullopt;
  Shape shape{.type = type, .rows = rows, .length = values / rows};
  if (shape.length < kLeastLength) return std::nullopt;
  if (fixed && static_cast<const arrow::FixedSizeListType&>(*type).list_size() != shape.length) return std::nullopt;
  return shape;
}

}  // namespace

std::optional<Arrays> read_uniform_lists(::parquet::ParquetFileReader& reader,
                                         const std::shared_ptr<arrow::DataType>& type, int row_group, int leaf,
                                         std::int64_t rows_per_part, arrow::MemoryPool* pool) {
  try {
    const auto shape = shape_of(reader, type, row_group, leaf);
    if (!shape || std::min(rows_per_part, shape->rows) > kMostPartValues / shape->length) return std::nullopt;
    const auto column = reader.RowGroup(row_group)->Column(leaf);
    auto arrays = read_by_type(*column, *shape, rows_per_part, pool);
    return arrays.ok() ? *std::move(arrays) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace gyre::data::parquet
