#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/formats/example.h"

namespace gyre::data {

/// Of the values in a batch. Bfloat16 values are rounded to the nearest, ties to even.
enum class ElementType { kUint8, kInt16, kInt32, kInt64, kFloat32, kBfloat16 };

std::size_t size_bytes(ElementType type);
std::string_view element_type_name(ElementType type);

/// What happens to each value on its way into a batch.
enum class ValueTransform {
  kNone,
  kLog1p,  ///< log(1 + x), in float32: CosmoFlow's apply_log.
};

/// One field of a sample, and so of a batch: where it comes from in a tf.train.Example, and what is made of it.
struct Field {
  std::string name;  ///< The feature's name, and the field's.
  /// kBytes: the feature's one value holds the elements as they lie, little-endian, of type `stored`.
  FeatureKind kind = FeatureKind::kBytes;
  ElementType stored = ElementType::kUint8;  ///< Floats are always kFloat32, integers kInt64.
  ElementType type = ElementType::kUint8;    ///< In the batch.
  std::vector<std::uint64_t> shape;          ///< Of one sample; empty: a single value.
  ValueTransform transform = ValueTransform::kNone;
};

/// How many values one sample has.
std::uint64_t element_count(const Field& field);

/// Error(kInvalidArgument) where there are no fields, two of one name, or a combination that converts nothing.
void check_fields(std::span<const Field> fields);

/// Turns records into the bytes of a batch. Immutable; thread-safe.
class FieldDecoder {
 public:
  /// check_fields() has accepted them.
  explicit FieldDecoder(std::vector<Field> fields);

  std::span<const Field> fields() const { return fields_; }
  /// Of field `index` of one sample, in a batch.
  std::size_t sample_bytes(std::size_t index) const { return sample_bytes_.at(index); }

  /// Writes each field of the Example `record` to `into` at its index, which has sample_bytes() of it.
  /// Error(kCorruptData) where the record is no Example, or lacks a field, or has it in another kind or size than the
  /// field says.
  void decode(std::span<const std::byte> record, std::span<const std::span<std::byte>> into) const;

 private:
  void decode_field(const Example& example, std::size_t index, std::span<std::byte> into) const;
  void convert(const Field& field, std::size_t index, std::span<const std::byte> values,
               std::span<std::byte> into) const;

  std::vector<Field> fields_;
  std::vector<std::size_t> sample_bytes_;
  std::vector<std::vector<std::byte>> tables_;  // By field: what each int16 becomes; empty where it stays as it is.
};

}  // namespace gyre::data
