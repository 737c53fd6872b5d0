#include "gyre/data/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gyre/base/error.h"
#include "gyre/data/internal/image_maker.h"
#include "gyre/data/narrow_floats.h"

namespace gyre::data {
namespace {

constexpr std::size_t kInt16Values = std::size_t{1} << 16;

template <typename T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
void write_as(T value, std::byte* into) {
  std::memcpy(into, &value, sizeof(value));
}

float transformed(const Field& field, float value) {
  value *= field.scale;
  return field.transform == ValueTransform::kLog1p ? std::log1p(value) : value;
}

float load(ElementType type, const std::byte* from) {
  switch (type) {
    case ElementType::kUint8: return static_cast<float>(std::to_integer<std::uint8_t>(*from));
    case ElementType::kInt16: return static_cast<float>(read_as<std::int16_t>(from));
    case ElementType::kInt32: return static_cast<float>(read_as<std::int32_t>(from));
    case ElementType::kInt64: return static_cast<float>(read_as<std::int64_t>(from));
    case ElementType::kFloat32: return read_as<float>(from);
    case ElementType::kBfloat16: return from_bfloat16(read_as<std::uint16_t>(from));
    case ElementType::kFloat16: return from_float16(read_as<std::uint16_t>(from));
  }
  return 0;
}

void store(float value, ElementType type, std::byte* into) {
  if (type == ElementType::kFloat32) {
    write_as(value, into);
  } else {
    write_as(type == ElementType::kBfloat16 ? to_bfloat16(value) : to_float16(value), into);
  }
}

void store(const FillValue& value, ElementType type, std::byte* into) {
  switch (type) {
    case ElementType::kUint8: return write_as(static_cast<std::uint8_t>(value.integer), into);
    case ElementType::kInt16: return write_as(static_cast<std::int16_t>(value.integer), into);
    case ElementType::kInt32: return write_as(static_cast<std::int32_t>(value.integer), into);
    case ElementType::kInt64: return write_as(value.integer, into);
    default: return store(static_cast<float>(value.real), type, into);
  }
}

void fill(const FillValue& value, ElementType type, std::span<std::byte> into) {
  for (std::size_t i = 0; i < into.size(); i += size_bytes(type)) store(value, type, into.data() + i);
}

/// What each of the 65,536 values of an int16, taken as an unsigned index, becomes.
std::vector<std::byte> int16_table(const Field& field) {
  const std::size_t size = size_bytes(field.type);
  std::vector<std::byte> table(kInt16Values * size);
  for (std::size_t i = 0; i < kInt16Values; ++i) {
    const auto value = static_cast<std::int16_t>(static_cast<std::uint16_t>(i));
    store(transformed(field, static_cast<float>(value)), field.type, table.data() + i * size);
  }
  return table;
}

template <typename Out>
void look_up(std::span<const std::byte> values, std::span<const std::byte> table, std::span<std::byte> into) {
  const std::size_t count = values.size() / sizeof(std::uint16_t);
  const std::byte* input = values.data();
  std::byte* output = into.data();
  for (std::size_t i = 0; i < count; ++i, input += sizeof(std::uint16_t), output += sizeof(Out)) {
    std::uint16_t index = 0;  // Records lie at any address.
    std::memcpy(&index, input, sizeof(index));
    std::memcpy(output, table.data() + index * sizeof(Out), sizeof(Out));
  }
}

ElementType stored_type(const Field& field) {
  switch (field.kind) {
    case FeatureKind::kFloats: return ElementType::kFloat32;
    case FeatureKind::kInts: return ElementType::kInt64;
    default: return field.stored;
  }
}

bool is_float(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kBfloat16 || type == ElementType::kFloat16;
}

/// Whether values are stored in the batch as they are.
bool stays_as_it_is(const Field& field) {
  return stored_type(field) == field.type && field.transform == ValueTransform::kNone && field.scale == 1;
}

/// Whether there is a way from what is stored to what the batch has.
bool can_convert(const Field& field) {
  const ElementType stored = stored_type(field);
  if (field.length) return field.type == ElementType::kInt64 && field.shape.empty() && !field.image;
  if (field.image) {
    return field.kind == FeatureKind::kBytes && field.transform == ValueTransform::kNone && field.scale == 1 &&
           !field.pad && (field.type == ElementType::kUint8 || is_float(field.type));
  }
  if (field.offset != 0 && field.kind != FeatureKind::kInts) return false;
  if (field.kind == FeatureKind::kEmpty) return false;
  if (is_float(field.type)) return stored != ElementType::kInt64;
  return stays_as_it_is(field);
}

void check_image(const Field& field) {
  const ImageOptions& image = *field.image;
  try {
    check_image_options(image);
  } catch (Error& error) {
    error.add_context(fmt::format("field '{}'", field.name));
    throw;
  }
  const std::vector<std::uint64_t> shape = image.channels_first
                                               ? std::vector<std::uint64_t>{kPixelBytes, image.height, image.width}
                                               : std::vector<std::uint64_t>{image.height, image.width, kPixelBytes};
  if (field.shape != shape) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("field '{}': an image of the shape [{}] cannot fill [{}]", field.name,
                            fmt::join(shape, ", "), fmt::join(field.shape, ", ")));
  }
}

/// The one byte string of a feature.
std::span<const std::byte> only_value(const Feature& feature) {
  const auto values = feature.bytes();
  if (values.size() != 1) {
    throw Error(ErrorCode::kCorruptData, fmt::format("the record holds {} byte strings there, not one", values.size()));
  }
  return values.front();
}

std::int64_t length_of(const Feature& feature) {
  const bool numbers = feature.numbers() != nullptr || feature.kind() != FeatureKind::kBytes;
  return static_cast<std::int64_t>(numbers ? feature.count() : only_value(feature).size());
}

/// Whether numbers lie in memory as a field of elements of that type has them.
bool lies_as(NumberType type, ElementType stored) {
  switch (type) {
    case NumberType::kUint8: return stored == ElementType::kUint8;
    case NumberType::kInt16: return stored == ElementType::kInt16;
    case NumberType::kInt32: return stored == ElementType::kInt32;
    case NumberType::kInt64: return stored == ElementType::kInt64;
    case NumberType::kFloat32: return stored == ElementType::kFloat32;
    default: return false;
  }
}

/// Lists in lists have the field's shape, or the field has them flat.
void check_extents(const Feature& feature, const Field& field) {
  if (feature.numbers() == nullptr || field.shape.size() < 2) return;
  const std::vector<std::uint64_t>& extents = feature.numbers()->extents;
  if (extents.empty() || extents == field.shape) return;
  throw Error(ErrorCode::kCorruptData, fmt::format("the lists there have the shape [{}], and the field [{}]",
                                                   fmt::join(extents, ", "), fmt::join(field.shape, ", ")));
}

}  // namespace

std::size_t size_bytes(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return 1;
    case ElementType::kInt16:
    case ElementType::kBfloat16:
    case ElementType::kFloat16: return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32: return 4;
    case ElementType::kInt64: return 8;
  }
  return 0;
}

std::string_view element_type_name(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return "uint8";
    case ElementType::kInt16: return "int16";
    case ElementType::kInt32: return "int32";
    case ElementType::kInt64: return "int64";
    case ElementType::kFloat32: return "float32";
    case ElementType::kBfloat16: return "bfloat16";
    case ElementType::kFloat16: return "float16";
  }
  return "?";
}

std::uint64_t element_count(const Field& field) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : field.shape) count *= extent;
  return count;
}

void check_fields(std::span<const Field> fields) {
  if (fields.empty()) throw Error(ErrorCode::kInvalidArgument, "a loader needs at least one field");
  constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const Field& field = fields[i];
    const auto again = std::ranges::find(fields.subspan(i + 1), field.name, &Field::name);
    if (again != fields.subspan(i + 1).end()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("two fields are called '{}'", field.name));
    }
    std::uint64_t count = 1;
    for (const std::uint64_t extent : field.shape) {
      if (extent == 0 || extent > kMostElements / count) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("field '{}' cannot have the shape [{}]", field.name, fmt::join(field.shape, ", ")));
      }
      count *= extent;
    }
    if (field.image) check_image(field);
    if (!can_convert(field)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("field '{}': {} ({}) cannot become {}{}", field.name, feature_kind_name(field.kind),
                              element_type_name(stored_type(field)), element_type_name(field.type),
                              field.transform == ValueTransform::kLog1p ? " by log1p"
                              : field.scale != 1                        ? " by a scale"
                                                                        : ""));
    }
  }
}

FieldDecoder::FieldDecoder(std::vector<Field> fields) : fields_(std::move(fields)) {
  for (const Field& field : fields_) {
    sample_bytes_.push_back(static_cast<std::size_t>(element_count(field)) * size_bytes(field.type));
    const bool by_table =
        !field.image && !field.length && stored_type(field) == ElementType::kInt16 && field.type != ElementType::kInt16;
    tables_.push_back(by_table ? int16_table(field) : std::vector<std::byte>{});
  }
}

FieldScratch::FieldScratch(const std::shared_ptr<MemoryBudget>& budget)
    : images_(std::make_unique<internal::ImageMaker>(budget)) {}
FieldScratch::~FieldScratch() = default;

std::size_t FieldScratch::bytes() const { return images_->scratch_bytes(); }

void FieldDecoder::decode(const Example& sample, const SampleIdentity& identity, FieldScratch& scratch,
                          StageClock& clock, std::span<const std::span<std::byte>> into) const {
  for (std::size_t index = 0; index < fields_.size(); ++index) {
    const Field& field = fields_[index];
    try {
      const Feature* const found = feature_of(sample, field);
      if (field.length) {
        write_as(found == nullptr ? std::int64_t{0} : length_of(*found), into[index].data());
        continue;
      }
      if (found == nullptr) {
        fill(field.missing ? *field.missing : *field.pad, field.type, into[index]);
        continue;
      }
      const Feature& feature = *found;
      if (field.image) {
        // The same for each image of a sample, so that an image and its mask are cut and mirrored alike.
        scratch.images().make(only_value(feature), feature.pixel_layout(), *field.image, field.type,
                              random_of_sample(identity.seed, identity.epoch, identity.sample), clock, into[index]);
      } else {
        decode_field(feature, index, into[index]);
        clock.finish(Stage::kAssemble);
      }
    } catch (Error& error) {
      error.add_context(fmt::format("field '{}'", field.name));
      throw;
    }
  }
}

const Feature* FieldDecoder::feature_of(const Example& sample, const Field& field) {
  const Feature* const feature = sample.find(field.feature_name());
  const bool optional = field.missing || field.length;
  if (feature == nullptr && optional) return nullptr;
  if (feature != nullptr && feature->kind() == FeatureKind::kEmpty && (optional || field.pad)) return nullptr;
  if (feature != nullptr && field.length) return feature;
  if (feature == nullptr) {
    throw Error(ErrorCode::kCorruptData, fmt::format("the record has no feature '{}'; it has: {}", field.feature_name(),
                                                     fmt::join(sample.names(), ", ")));
  }
  check_extents(*feature, field);
  // An empty list has no type in Python.
  if (feature->kind() != field.kind && (optional || field.pad) && feature->count() == 0) return nullptr;
  const bool as_bytes = field.kind == FeatureKind::kBytes && !field.image && feature->numbers() != nullptr;
  if (feature->kind() != field.kind && !(as_bytes && lies_as(feature->numbers()->type, field.stored))) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format(
            "the record holds {}{} there, not {}", feature_kind_name(feature->kind()),
            feature->numbers() == nullptr ? "" : fmt::format(" ({})", number_type_name(feature->numbers()->type)),
            feature_kind_name(field.kind)));
  }
  return feature;
}

std::span<const std::byte> FieldDecoder::stored_bytes(const Feature& feature, const Field& field) {
  return field.kind == FeatureKind::kBytes && feature.numbers() != nullptr ? feature.numbers()->values
                                                                           : only_value(feature);
}

void FieldDecoder::decode_field(const Feature& feature, std::size_t index, std::span<std::byte> into) const {
  const Field& field = fields_[index];
  const auto count = static_cast<std::size_t>(element_count(field));
  const auto wrong_size = [&] {
    return Error(
        ErrorCode::kCorruptData,
        fmt::format("the record holds {} {} there; a field of the shape [{}] needs {}{}", feature.count(),
                    feature_kind_name(field.kind), fmt::join(field.shape, ", "), field.pad ? "at most " : "", count));
  };
  // How many values are read; a feature that may be shorter is counted, which is a pass over it.
  const auto present = [&] { return field.pad ? std::min(feature.count(), count + 1) : count; };
  if (field.kind == FeatureKind::kInts) {
    std::vector<std::int64_t> values(present());
    if (values.size() > count || !feature.copy_ints(values)) throw wrong_size();
    for (std::int64_t& value : values) {
      const std::int64_t stored = value;
      if (__builtin_add_overflow(stored, field.offset, &value)) {
        throw Error(
            ErrorCode::kCorruptData,
            fmt::format("the record holds {} there, and {} more does not fit into an int64", stored, field.offset));
      }
    }
    return convert(field, index, std::as_bytes(std::span(values)), into);
  }
  if (field.kind == FeatureKind::kFloats) {
    std::vector<float> values(present());
    if (values.size() > count || !feature.copy_floats(values)) throw wrong_size();
    return convert(field, index, std::as_bytes(std::span(values)), into);
  }
  const auto values = stored_bytes(feature, field);
  const std::size_t whole = count * size_bytes(field.stored);
  const bool shorter = field.pad && values.size() < whole && values.size() % size_bytes(field.stored) == 0;
  if (values.size() != whole && !shorter) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("the record holds {} bytes there; a field of the shape [{}] of {} needs {}{}", values.size(),
                    fmt::join(field.shape, ", "), element_type_name(field.stored), field.pad ? "at most " : "", whole));
  }
  convert(field, index, values, into);
}

void FieldDecoder::convert(const Field& field, std::size_t index, std::span<const std::byte> values,
                           std::span<std::byte> into) const {
  const ElementType stored = stored_type(field);
  const std::size_t from_bytes = size_bytes(stored);
  const std::size_t to_bytes = size_bytes(field.type);
  const std::size_t count = values.size() / from_bytes;
  if (const auto rest = into.subspan(count * to_bytes); !rest.empty()) fill(*field.pad, field.type, rest);
  if (!tables_[index].empty()) {
    return field.type == ElementType::kFloat32 ? look_up<float>(values, tables_[index], into)
                                               : look_up<std::uint16_t>(values, tables_[index], into);
  }
  if (stays_as_it_is(field)) {
    if (!values.empty()) std::memcpy(into.data(), values.data(), values.size());
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    store(transformed(field, load(stored, values.data() + i * from_bytes)), field.type, into.data() + i * to_bytes);
  }
}

}  // namespace gyre::data
