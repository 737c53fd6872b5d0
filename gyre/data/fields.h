#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/formats/example.h"
#include "gyre/data/image_sampling.h"
#include "gyre/data/scratch_buffer.h"
#include "gyre/data/stages.h"

namespace gyre::data {

/// Of the values in a batch. Bfloat16 and float16 values are rounded to the nearest, ties to even.
enum class ElementType { kUint8, kInt16, kInt32, kInt64, kFloat32, kBfloat16, kFloat16 };

std::size_t size_bytes(ElementType type);
std::string_view element_type_name(ElementType type);

/// What happens to each value on its way into a batch.
enum class ValueTransform {
  kNone,
  kLog1p,  ///< log(1 + x), in float32: CosmoFlow's apply_log.
};

/// A value that stands for missing ones: `real` in fields of floats, `integer` in others.
struct FillValue {
  std::int64_t integer = 0;
  double real = 0;
};

/// One field of a sample, and so of a batch: where it comes from in a tf.train.Example, and what is made of it.
struct Field {
  std::string name;  ///< The field's, and the feature's where that has none.
  /// kBytes: the feature's one value holds the elements as they lie, little-endian, of type `stored`; or they are
  /// numbers of that type.
  FeatureKind kind = FeatureKind::kBytes;
  ElementType stored = ElementType::kUint8;  ///< Floats are always kFloat32, integers kInt64.
  ElementType type = ElementType::kUint8;    ///< In the batch.
  std::vector<std::uint64_t> shape;          ///< Of one sample; empty: a single value.
  ValueTransform transform = ValueTransform::kNone;
  std::string feature{};               ///< Its name, where it is another one than the field's.
  std::int64_t offset = 0;             ///< Added to each integer: labels that count from 1 become such from 0.
  float scale = 1;                     ///< Each value is multiplied by it, before `transform`; for batches of floats.
  std::optional<FillValue> pad{};      ///< Fills up a feature of fewer values; without it that is an error.
  std::optional<FillValue> missing{};  ///< All values of a sample without the feature; without it that is an error.
  /// The field is the number of the feature's values, bytes of a byte string, as one kInt64; 0 without the feature.
  bool length = false;
  /// Of kBytes: the value is an image, and becomes [3, height, width] or [height, width, 3] values of `type`, which is
  /// kUint8 or a float.
  std::optional<ImageOptions> image{};

  const std::string& feature_name() const { return feature.empty() ? name : feature; }
};

/// What a sample's random changes depend on.
struct SampleIdentity {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
};

/// How many values one sample has.
std::uint64_t element_count(const Field& field);

/// Error(kInvalidArgument) where there are no fields, two of one name, or a combination that converts nothing.
void check_fields(std::span<const Field> fields);

namespace internal {
class ImageMaker;
}  // namespace internal

/// What a thread needs to decode fields, kept from sample to sample. Not thread-safe: one per thread.
class FieldScratch {
 public:
  explicit FieldScratch(const std::shared_ptr<MemoryBudget>& budget = nullptr);
  ~FieldScratch();

  internal::ImageMaker& images() { return *images_; }
  std::size_t bytes() const;

 private:
  std::unique_ptr<internal::ImageMaker> images_;
};

/// Turns samples into the bytes of a batch. Immutable; thread-safe.
class FieldDecoder {
 public:
  /// check_fields() has accepted them.
  explicit FieldDecoder(std::vector<Field> fields);

  std::span<const Field> fields() const { return fields_; }
  /// Of field `index` of one sample, in a batch.
  std::size_t sample_bytes(std::size_t index) const { return sample_bytes_.at(index); }

  /// Writes each field of `sample` to `into` at its index, which has sample_bytes() of it. Adds the time to `clock`'s.
  /// Error(kCorruptData) where the sample lacks a field, or has it in another kind or size than the field says; for
  /// images those of ImageDecoder.
  void decode(const Example& sample, const SampleIdentity& identity, FieldScratch& scratch, StageClock& clock,
              std::span<const std::span<std::byte>> into) const;

 private:
  /// Null where a sample may lack it.
  static const Feature* feature_of(const Example& sample, const Field& field);
  /// Of a kBytes feature, or of its numbers.
  static std::span<const std::byte> stored_bytes(const Feature& feature, const Field& field);
  void decode_field(const Feature& feature, std::size_t index, std::span<std::byte> into) const;
  /// The values given, then the padding.
  void convert(const Field& field, std::size_t index, std::span<const std::byte> values,
               std::span<std::byte> into) const;

  std::vector<Field> fields_;
  std::vector<std::size_t> sample_bytes_;
  std::vector<std::vector<std::byte>> tables_;  // By field: what each int16 becomes; empty where it stays as it is.
};

}  // namespace gyre::data
