#include "gyre/data/formats/example.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <ranges>

#include "gyre/base/error.h"
#include "gyre/data/internal/protobuf_reader.h"

namespace gyre::data {
namespace {

static_assert(std::endian::native == std::endian::little, "packed floats are copied as they lie");
static_assert(sizeof(float) == 4 && std::numeric_limits<float>::is_iec559);

// The numbers of the fields.
constexpr std::uint32_t kExampleFeatures = 1;
constexpr std::uint32_t kFeaturesEntry = 1;
constexpr std::uint32_t kEntryKey = 1;
constexpr std::uint32_t kEntryValue = 2;
constexpr std::uint32_t kListValue = 1;

constexpr std::array kKindOfField = {FeatureKind::kEmpty, FeatureKind::kBytes, FeatureKind::kFloats,
                                     FeatureKind::kInts};

bool is_message(const ProtobufReader::Field& field, std::uint32_t number) {
  return field.number == number && field.type == WireType::kLengthDelimited;
}

}  // namespace

std::string_view feature_kind_name(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes: return "bytes";
    case FeatureKind::kFloats: return "floats";
    case FeatureKind::kInts: return "integers";
    case FeatureKind::kEmpty: break;
  }
  return "nothing";
}

std::vector<std::span<const std::byte>> Feature::bytes() const {
  if (value_) return {*value_};
  if (strings_) return *strings_;
  std::vector<std::span<const std::byte>> values;
  for (const auto& list : lists_) {
    for (ProtobufReader reader(list); !reader.at_end();) {
      const auto field = reader.next();
      if (is_message(field, kListValue)) values.push_back(field.bytes);
    }
  }
  return values;
}

bool Feature::copy_floats(std::span<float> values) const {
  if (numbers_) {
    if (values.size() == numbers_->count()) copy_numbers(*numbers_, values);
    return values.size() == numbers_->count();
  }
  std::size_t count = 0;
  for (const auto& list : lists_) {
    for (ProtobufReader reader(list); !reader.at_end();) {
      const auto field = reader.next();
      if (field.number != kListValue) continue;
      if (field.type == WireType::kFixed32) {
        if (count == values.size()) return false;
        values[count++] = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
      } else if (field.type == WireType::kLengthDelimited) {
        const std::size_t more = field.bytes.size() / sizeof(float);
        if (field.bytes.size() % sizeof(float) != 0) {
          throw Error(ErrorCode::kCorruptData, "a packed list of floats ends within a float");
        }
        if (more > values.size() - count) return false;
        if (more > 0) std::memcpy(values.data() + count, field.bytes.data(), field.bytes.size());
        count += more;
      }
    }
  }
  return count == values.size();
}

Feature Feature::of_bytes(std::span<const std::byte> value) {
  Feature feature;
  feature.kind_ = FeatureKind::kBytes;
  feature.value_ = value;
  return feature;
}

Feature Feature::of_pixels(std::span<const std::byte> value, const PixelLayout& layout) {
  Feature feature = of_bytes(value);
  feature.layout_ = layout;
  return feature;
}

Feature Feature::of_int(std::int64_t value) {
  Feature feature;
  feature.kind_ = FeatureKind::kInts;
  feature.number_ = value;
  return feature;
}

Feature Feature::of_strings(std::vector<std::span<const std::byte>> values) {
  Feature feature;
  feature.kind_ = FeatureKind::kBytes;
  feature.strings_ = std::move(values);
  return feature;
}

Feature Feature::of_numbers(NumberList numbers) {
  Feature feature;
  feature.kind_ = is_float(numbers.type) ? FeatureKind::kFloats : FeatureKind::kInts;
  feature.numbers_ = std::move(numbers);
  return feature;
}

bool Feature::copy_ints(std::span<std::int64_t> values) const {
  if (numbers_) {
    if (values.size() == numbers_->count()) copy_numbers(*numbers_, values);
    return values.size() == numbers_->count();
  }
  if (number_) {
    if (values.size() == 1) values[0] = *number_;
    return values.size() == 1;
  }
  std::size_t count = 0;
  const auto add = [&](std::uint64_t value) {
    if (count < values.size()) values[count] = static_cast<std::int64_t>(value);
    return count++ < values.size();
  };
  for (const auto& list : lists_) {
    for (ProtobufReader reader(list); !reader.at_end();) {
      const auto field = reader.next();
      if (field.number != kListValue) continue;
      if (field.type == WireType::kVarint && !add(field.value)) return false;
      if (field.type != WireType::kLengthDelimited) continue;
      for (ProtobufReader packed(field.bytes); !packed.at_end();) {
        if (!add(packed.varint())) return false;
      }
    }
  }
  return count == values.size();
}

std::size_t Feature::count() const {
  if (value_ || number_) return 1;
  if (strings_) return strings_->size();
  if (numbers_) return numbers_->count();
  std::size_t count = 0;
  for (const auto& list : lists_) {
    for (ProtobufReader reader(list); !reader.at_end();) {
      const auto field = reader.next();
      if (field.number != kListValue) continue;
      if (field.type != WireType::kLengthDelimited) {
        ++count;
      } else if (kind_ == FeatureKind::kFloats) {
        count += field.bytes.size() / sizeof(float);
      } else {
        for (ProtobufReader packed(field.bytes); !packed.at_end(); ++count) packed.varint();
      }
    }
  }
  return count;
}

Example::Example(std::span<const std::byte> message) {
  for (ProtobufReader reader(message); !reader.at_end();) {
    const auto field = reader.next();
    if (is_message(field, kExampleFeatures)) add_features(field.bytes);
  }
}

void Example::add_features(std::span<const std::byte> message) {
  for (ProtobufReader reader(message); !reader.at_end();) {
    const auto field = reader.next();
    if (!is_message(field, kFeaturesEntry)) continue;
    Entry entry;
    for (ProtobufReader pair(field.bytes); !pair.at_end();) {
      const auto half = pair.next();
      if (is_message(half, kEntryKey)) entry.name = as_text(half.bytes);
      if (is_message(half, kEntryValue)) entry.feature = parse_feature(half.bytes);
    }
    features_.push_back(std::move(entry));
  }
}

Feature Example::parse_feature(std::span<const std::byte> message) {
  Feature feature;
  for (ProtobufReader reader(message); !reader.at_end();) {
    const auto field = reader.next();
    if (field.type != WireType::kLengthDelimited || field.number == 0 || field.number >= kKindOfField.size()) continue;
    const FeatureKind kind = kKindOfField.at(field.number);
    // One of a kind: another one replaces it, the same one adds to it.
    if (kind != feature.kind_) feature.lists_.clear();
    feature.kind_ = kind;
    feature.lists_.push_back(field.bytes);
  }
  return feature;
}

const Feature* Example::find(std::string_view name) const {
  const auto last_first = std::views::reverse(features_);
  const auto found = std::ranges::find(last_first, name, &Entry::name);
  return found == last_first.end() ? nullptr : &found->feature;
}

std::vector<std::string_view> Example::names() const {
  std::vector<std::string_view> names;
  for (const Entry& entry : features_) names.push_back(entry.name);
  return names;
}

void ExampleWriter::add(std::string_view name, FeatureKind kind, Bytes list) {
  ProtobufWriter feature;
  const auto field = std::ranges::find(kKindOfField, kind) - kKindOfField.begin();
  feature.bytes_field(static_cast<std::uint32_t>(field), list);
  ProtobufWriter entry;
  entry.bytes_field(kEntryKey, as_bytes(name));
  entry.bytes_field(kEntryValue, feature.take());
  features_.bytes_field(kFeaturesEntry, entry.take());
}

void ExampleWriter::add_bytes(std::string_view name, std::span<const std::byte> value) {
  ProtobufWriter list;
  list.bytes_field(kListValue, value);
  add(name, FeatureKind::kBytes, list.take());
}

void ExampleWriter::add_floats(std::string_view name, std::span<const float> values) {
  ProtobufWriter list;
  list.bytes_field(kListValue, std::as_bytes(values));
  add(name, FeatureKind::kFloats, list.take());
}

void ExampleWriter::add_ints(std::string_view name, std::span<const std::int64_t> values) {
  ProtobufWriter packed;
  for (const std::int64_t value : values) packed.varint(static_cast<std::uint64_t>(value));
  ProtobufWriter list;
  list.bytes_field(kListValue, packed.take());
  add(name, FeatureKind::kInts, list.take());
}

Bytes ExampleWriter::take() {
  ProtobufWriter example;
  example.bytes_field(kExampleFeatures, features_.take());
  return example.take();
}

}  // namespace gyre::data
