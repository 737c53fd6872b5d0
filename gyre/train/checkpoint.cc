#include "gyre/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::train {
namespace {

// In the order in which its entries are written.
using Json = nlohmann::ordered_json;

constexpr std::string_view kOldMagic = "GYRECKPT";  // Of a format that no release has written.
constexpr std::string_view kVersion = "2";
constexpr std::size_t kSizeBytes = 8;
constexpr std::size_t kAlignmentBytes = 64;
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";

// Entries of the metadata that are the format's own.
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kVersionKey = "gyre_checkpoint";
constexpr std::string_view kChecksumKey = "checksum";
constexpr std::string_view kFrameworkKey = "format";
constexpr std::string_view kFramework = "pt";  // As other tools mark tensors of torch.
constexpr std::string_view kChecksumPrefix = "xxh3:";
constexpr std::string_view kNoChecksum = "xxh3:0000000000000000";

struct Type {
  std::string_view name;
  std::string_view stored_name;
  std::uint64_t bytes;
};
constexpr std::array<Type, 10> kTypes = {{{"bool", "BOOL", 1},
                                          {"uint8", "U8", 1},
                                          {"int8", "I8", 1},
                                          {"int16", "I16", 2},
                                          {"float16", "F16", 2},
                                          {"bfloat16", "BF16", 2},
                                          {"int32", "I32", 4},
                                          {"float32", "F32", 4},
                                          {"int64", "I64", 8},
                                          {"float64", "F64", 8}}};

const Type* find_type(std::string_view name, std::string_view Type::* which) {
  const auto* const entry = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& t) { return t.*which == name; });
  return entry == kTypes.end() ? nullptr : entry;
}

std::uint64_t align(std::uint64_t offset) { return (offset + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

/// Bytes of a tensor; nothing for an unknown type, a negative size or more than any file holds.
std::optional<std::uint64_t> tensor_bytes(const Type* type, const std::vector<std::int64_t>& shape) {
  if (type == nullptr) return std::nullopt;
  std::uint64_t total = type->bytes;
  for (const std::int64_t size : shape) {
    if (size < 0 || static_cast<std::uint64_t>(size) > kMostCheckpointBytes) return std::nullopt;
    if (size != 0 && total > kMostCheckpointBytes / static_cast<std::uint64_t>(size)) return std::nullopt;
    total *= static_cast<std::uint64_t>(size);
  }
  return total;
}

[[noreturn]] void fail(std::string_view name, std::string_view why) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", name, why));
}

std::string checksum_text(std::span<const std::byte> bytes) {
  return fmt::format("{}{:016x}", kChecksumPrefix, xxh3_64(bytes));
}

/// Where the header stands; the file is at least that long.
std::string_view find_header(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < kSizeBytes) {
    fail(name, fmt::format("the checkpoint is cut short: {} bytes, not even its beginning", bytes.size()));
  }
  if (as_text(bytes.first(kSizeBytes)) == kOldMagic) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: checkpoint format version 1; this program reads version {}", name, kVersion));
  }
  ByteReader reader(bytes, name);
  const std::uint64_t header_bytes = reader.u64();
  if (header_bytes > kMostCheckpointBytes) fail(name, "not a checkpoint: its header would be larger than any file");
  if (header_bytes > bytes.size() - kSizeBytes) {
    fail(name, fmt::format("the checkpoint is cut short: {} of at least {} bytes are there", bytes.size(),
                           kSizeBytes + header_bytes));
  }
  return as_text(bytes.subspan(kSizeBytes, header_bytes));
}

/// The tensors' bytes begin where the header ends, and follow each other without gaps: what the last of them says is
/// the file's size.
void check_size(const Json& header, std::size_t header_bytes, std::size_t file_bytes, std::string_view name) {
  std::uint64_t data_bytes = 0;
  for (const auto& [key, entry] : header.items()) {
    if (key != kMetadata) data_bytes = std::max(data_bytes, entry.at("data_offsets").at(1).get<std::uint64_t>());
  }
  if (data_bytes > kMostCheckpointBytes) fail(name, "the checkpoint is damaged: a tensor is larger than any file");
  const std::uint64_t expected = kSizeBytes + header_bytes + data_bytes;
  if (expected > file_bytes) {
    fail(name, fmt::format("the checkpoint is cut short: {} of {} bytes are there", file_bytes, expected));
  }
  if (expected < file_bytes) {
    fail(name, fmt::format("the checkpoint is damaged: {} bytes where its header says {}", file_bytes, expected));
  }
}

/// The checksum is over the file with zeros in its place. Puts them there, and back.
void check_checksum(Bytes& bytes, const std::string& stored, std::string_view name) {
  if (stored.size() != kNoChecksum.size()) fail(name, "the checkpoint's checksum is none of ours");
  const std::size_t place = find_header(bytes, name).find(stored);
  if (place == std::string_view::npos) fail(name, "the checkpoint's checksum is written in another way than ours");
  std::byte* const digits = bytes.data() + kSizeBytes + place;
  std::memcpy(digits, kNoChecksum.data(), kNoChecksum.size());
  const bool right = checksum_text(bytes) == stored;
  std::memcpy(digits, stored.data(), stored.size());
  if (!right) fail(name, "the checkpoint is damaged: its checksum does not match");
}

CheckpointTensor read_tensor(const std::string& key, const Json& entry, std::span<const std::byte> data,
                             std::string_view name) {
  CheckpointTensor tensor;
  tensor.name = key;
  const Type* const type = find_type(entry.at("dtype").get<std::string>(), &Type::stored_name);
  entry.at("shape").get_to(tensor.shape);
  const auto begin = entry.at("data_offsets").at(0).get<std::uint64_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::uint64_t>();
  const std::optional<std::uint64_t> size = tensor_bytes(type, tensor.shape);
  if (!size) fail(name, fmt::format("tensor {} has an unknown type or an impossible shape", tensor.name));
  if (begin > end || end > data.size() || end - begin != *size) {
    fail(name, fmt::format("tensor {} lies outside the file, or has another size than its shape says", tensor.name));
  }
  tensor.type = type->name;
  tensor.bytes = data.subspan(begin, *size);
  return tensor;
}

/// JSON that names an entry twice would lose the first.
Json parse_header(std::string_view text, std::string_view name) {
  std::set<std::string> names;
  const auto once = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      fail(name, fmt::format("tensor {} is there twice", parsed.get<std::string>()));
    }
    return true;
  };
  return Json::parse(text, once);
}

/// In the order in which they were handed in, but for the size of their elements, the largest first: so each lies where
/// its type may.
std::vector<const CheckpointTensor*> in_order_of_file(const std::vector<CheckpointTensor>& tensors) {
  std::vector<const CheckpointTensor*> ordered;
  for (const CheckpointTensor& tensor : tensors) ordered.push_back(&tensor);
  // Where they lie decides among equals; Clang finds something deprecated in std::stable_sort.
  std::ranges::sort(ordered, [](const CheckpointTensor* a, const CheckpointTensor* b) {
    const auto bytes = [](const CheckpointTensor* tensor) { return find_type(tensor->type, &Type::name)->bytes; };
    return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : a < b;
  });
  return ordered;
}

/// Padded so that the tensors' bytes begin at a multiple of 64.
std::string header_text(const Checkpoint& checkpoint, const std::vector<const CheckpointTensor*>& tensors) {
  Json header;
  Json& metadata = header[kMetadata];
  metadata[kFrameworkKey] = kFramework;
  metadata[kVersionKey] = kVersion;
  metadata[kChecksumKey] = kNoChecksum;
  for (const auto& [key, value] : checkpoint.metadata) {
    GYRE_CHECK(!metadata.contains(key));
    metadata[key] = value;
  }
  std::uint64_t offset = 0;
  for (const CheckpointTensor* tensor : tensors) {
    GYRE_CHECK(!header.contains(tensor->name));
    const std::uint64_t end = offset + tensor->bytes.size();
    header[tensor->name] = {{"dtype", find_type(tensor->type, &Type::name)->stored_name},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append(align(kSizeBytes + text.size()) - kSizeBytes - text.size(), ' ');
  return text;
}

}  // namespace

bool Checkpoint::has_tensor(std::string_view name) const {
  return std::ranges::find(tensors, name, &CheckpointTensor::name) != tensors.end();
}

const CheckpointTensor& Checkpoint::tensor(std::string_view name) const {
  for (const CheckpointTensor& candidate : tensors) {
    if (candidate.name == name) return candidate;
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("the checkpoint has no tensor {}; it belongs to another program or "
                                                   "network",
                                                   name));
}

const std::string& Checkpoint::value(const std::string& name) const {
  const auto found = metadata.find(name);
  if (found != metadata.end()) return found->second;
  throw Error(ErrorCode::kCorruptData, fmt::format("the checkpoint does not say its {}", name));
}

Bytes encode_checkpoint(const Checkpoint& checkpoint) {
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::optional<std::uint64_t> size = tensor_bytes(find_type(tensor.type, &Type::name), tensor.shape);
    GYRE_CHECK((size && *size == tensor.bytes.size()));
  }
  const std::vector<const CheckpointTensor*> tensors = in_order_of_file(checkpoint.tensors);
  const std::string header = header_text(checkpoint, tensors);
  ByteWriter writer;
  writer.u64(header.size());
  writer.text(header);
  Bytes bytes = writer.take();
  for (const CheckpointTensor* tensor : tensors) {
    bytes.insert(bytes.end(), tensor->bytes.begin(), tensor->bytes.end());
  }
  // The first occurrence is ours: it stands before everything that the caller has named.
  const std::string checksum = checksum_text(bytes);
  std::memcpy(bytes.data() + kSizeBytes + header.find(kNoChecksum), checksum.data(), checksum.size());
  return bytes;
}

Checkpoint decode_checkpoint(Bytes bytes, std::string_view name) {
  Checkpoint checkpoint;
  try {
    const std::string_view text = find_header(bytes, name);
    const Json header = parse_header(text, name);
    Json metadata = header.value(kMetadata, Json::object());
    if (!metadata.contains(kVersionKey)) {
      fail(name, "not a checkpoint of Gyre: its metadata has no gyre_checkpoint");
    }
    if (const auto version = metadata.at(kVersionKey).get<std::string>(); version != kVersion) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: checkpoint format version {}; this program reads version {}", name, version, kVersion));
    }
    check_size(header, text.size(), bytes.size(), name);
    check_checksum(bytes, metadata.at(kChecksumKey).get<std::string>(), name);
    for (const std::string_view own : {kFrameworkKey, kVersionKey, kChecksumKey}) metadata.erase(std::string(own));
    metadata.get_to(checkpoint.metadata);
    checkpoint.storage = std::move(bytes);
    const auto data = std::span<const std::byte>(checkpoint.storage).subspan(kSizeBytes + text.size());
    for (const auto& [key, entry] : header.items()) {
      if (key != kMetadata) checkpoint.tensors.push_back(read_tensor(key, entry, data, name));
    }
  } catch (const Json::exception& error) {
    fail(name, fmt::format("the checkpoint's header is damaged, or not what version {} describes: {}", kVersion,
                           error.what()));
  }
  return checkpoint;
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  return decode_checkpoint(read_file(path, kMostCheckpointBytes), path.string());
}

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, std::size_t keep)
    : folder_(std::move(folder)), keep_(keep) {
  GYRE_CHECK(keep_ >= 1U);
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) throw system_error(fmt::format("cannot make the folder {}", folder_.string()), failure.value());
}

std::filesystem::path CheckpointFolder::path_in(const std::filesystem::path& folder, std::uint64_t number) {
  return folder / fmt::format("{}{:012}{}", kPrefix, number, kSuffix);
}

std::map<std::uint64_t, std::filesystem::path> CheckpointFolder::files() const {
  std::map<std::uint64_t, std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    std::uint64_t number = 0;
    const char* end = name.data() + name.size() - kSuffix.size();
    const auto result = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (result.ec == std::errc() && result.ptr == end) found.emplace(number, entry.path());
  }
  return found;
}

std::vector<std::uint64_t> CheckpointFolder::numbers() const {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, path] : files()) numbers.push_back(number);
  return numbers;
}

std::filesystem::path CheckpointFolder::save(std::uint64_t number, const Checkpoint& checkpoint) const {
  const std::filesystem::path path = path_of(number);
  std::map<std::uint64_t, std::filesystem::path> earlier = files();
  try {
    write_file_atomically(path, encode_checkpoint(checkpoint));
  } catch (Error& error) {
    const std::string state = earlier.empty() ? "there is no earlier checkpoint"
                                              : fmt::format("{} is intact", earlier.rbegin()->second.string());
    throw error.add_context(fmt::format("the checkpoint after {} samples could not be saved; {}", number, state));
  }
  earlier.erase(number);
  // What cannot be removed does no harm; the next save tries again.
  std::error_code ignored;
  for (std::size_t left = earlier.size(); const auto& [older, file] : earlier) {
    if (left-- >= keep_) std::filesystem::remove(file, ignored);
  }
  return path;
}

std::optional<CheckpointFolder::Found> CheckpointFolder::find_latest_valid(
    const std::function<void(const Checkpoint&)>& check) const {
  const std::map<std::uint64_t, std::filesystem::path> candidates = files();
  if (candidates.empty()) return std::nullopt;
  std::vector<std::string> rejected;
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    const auto& [number, path] = *candidate;
    try {
      Checkpoint checkpoint = load_checkpoint(path);
      if (check) check(checkpoint);
      return Found{number, path, std::move(checkpoint), std::move(rejected)};
    } catch (const Error& error) {
      // Handed to the caller, who reports it.
      const bool named = std::string_view(error.what()).find(path.string()) != std::string_view::npos;
      rejected.push_back(named ? error.what() : fmt::format("{}: {}", path.string(), error.what()));
    }
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("none of the {} checkpoints in {} can be used: {}", rejected.size(),
                                                   folder_.string(), rejected.front()));
}

}  // namespace gyre::train
