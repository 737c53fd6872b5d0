#include "gyre/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::train {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMagic = "GYRECKPT";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 32;  // Magic, version, zero, file size, header size.
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kAlignmentBytes = 64;
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".gyre";

struct TypeSize {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<TypeSize, 10> kTypes = {{{"bool", 1},
                                              {"uint8", 1},
                                              {"int8", 1},
                                              {"int16", 2},
                                              {"float16", 2},
                                              {"bfloat16", 2},
                                              {"int32", 4},
                                              {"float32", 4},
                                              {"int64", 8},
                                              {"float64", 8}}};

std::uint64_t align(std::uint64_t offset) { return (offset + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

/// Bytes of a tensor; nothing for an unknown type, a negative size or more than any file holds.
std::optional<std::uint64_t> tensor_bytes(std::string_view type, const std::vector<std::int64_t>& shape) {
  const auto* const entry =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeSize& t) { return t.name == type; });
  if (entry == kTypes.end()) return std::nullopt;
  std::uint64_t total = entry->bytes;
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

/// The fixed part and the checksum. Returns the size of the JSON header.
std::uint64_t check_frame(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < kFixedBytes + kChecksumBytes) {
    fail(name, fmt::format("the checkpoint is cut short: {} bytes, not even its beginning", bytes.size()));
  }
  ByteReader reader(bytes, name);
  if (reader.text(kMagic.size()) != kMagic) fail(name, "not a Gyre checkpoint (it does not begin with GYRECKPT)");
  if (const std::uint32_t version = reader.u32(); version != kVersion) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{}: checkpoint format version {}; this program reads version {}",
                                                     name, version, kVersion));
  }
  reader.u32();
  const std::uint64_t file_bytes = reader.u64();
  const std::uint64_t header_bytes = reader.u64();
  if (file_bytes > bytes.size()) {
    fail(name, fmt::format("the checkpoint is cut short: {} of {} bytes are there", bytes.size(), file_bytes));
  }
  if (file_bytes < bytes.size()) {
    fail(name, fmt::format("the checkpoint is damaged: {} bytes where its header says {}", bytes.size(), file_bytes));
  }
  const auto content = bytes.first(bytes.size() - kChecksumBytes);
  ByteReader checksum(bytes.last(kChecksumBytes), name);
  if (checksum.u64() != xxh3_64(content)) fail(name, "the checkpoint is damaged: its checksum does not match");
  if (header_bytes > content.size() - kFixedBytes) fail(name, "the checkpoint's header is longer than the file");
  return header_bytes;
}

CheckpointTensor read_tensor(const Json& entry, std::span<const std::byte> data, std::string_view name) {
  CheckpointTensor tensor;
  entry.at("name").get_to(tensor.name);
  entry.at("type").get_to(tensor.type);
  entry.at("shape").get_to(tensor.shape);
  const auto offset = entry.at("offset").get<std::uint64_t>();
  const std::optional<std::uint64_t> size = tensor_bytes(tensor.type, tensor.shape);
  if (!size) fail(name, fmt::format("tensor {} has an unknown type or an impossible shape", tensor.name));
  if (offset > data.size() || *size > data.size() - offset) {
    fail(name, fmt::format("tensor {} lies outside the file", tensor.name));
  }
  tensor.bytes = data.subspan(offset, *size);
  return tensor;
}

void read_header(Checkpoint& checkpoint, std::string_view text, std::span<const std::byte> data,
                 std::string_view name) {
  try {
    const Json header = Json::parse(text);
    header.at("metadata").get_to(checkpoint.metadata);
    std::set<std::string> names;
    for (const Json& entry : header.at("tensors")) {
      checkpoint.tensors.push_back(read_tensor(entry, data, name));
      if (!names.insert(checkpoint.tensors.back().name).second) {
        fail(name, fmt::format("tensor {} is there twice", checkpoint.tensors.back().name));
      }
    }
  } catch (const Json::exception& error) {
    fail(name, fmt::format("the checkpoint's header is not what version {} describes: {}", kVersion, error.what()));
  }
}

}  // namespace

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
  Json header;
  header["metadata"] = checkpoint.metadata;
  header["tensors"] = Json::array();
  std::uint64_t data_bytes = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::optional<std::uint64_t> size = tensor_bytes(tensor.type, tensor.shape);
    GYRE_CHECK((size && *size == tensor.bytes.size()));
    header["tensors"].push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"offset", data_bytes}});
    data_bytes = align(data_bytes + *size);
  }
  std::string text = header.dump();
  text.append(align(kFixedBytes + text.size()) - kFixedBytes - text.size(), ' ');
  const std::uint64_t file_bytes = kFixedBytes + text.size() + data_bytes + kChecksumBytes;

  ByteWriter writer;
  writer.text(kMagic);
  writer.u32(kVersion);
  writer.u32(0);
  writer.u64(file_bytes);
  writer.u64(text.size());
  writer.text(text);
  Bytes bytes = writer.take();
  bytes.reserve(file_bytes);
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    bytes.resize(align(bytes.size()));
  }
  ByteWriter checksum;
  checksum.u64(xxh3_64(bytes));
  bytes.insert(bytes.end(), checksum.result().begin(), checksum.result().end());
  GYRE_CHECK(bytes.size() == file_bytes);
  return bytes;
}

Checkpoint decode_checkpoint(Bytes bytes, std::string_view name) {
  const std::uint64_t header_bytes = check_frame(bytes, name);
  Checkpoint checkpoint;
  checkpoint.storage = std::move(bytes);
  const std::span<const std::byte> content = checkpoint.storage;
  const auto data = content.subspan(kFixedBytes + header_bytes).first(content.size() - kFixedBytes - header_bytes - 8);
  read_header(checkpoint, as_text(content.subspan(kFixedBytes, header_bytes)), data, name);
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

std::filesystem::path CheckpointFolder::path_of(std::uint64_t number) const {
  return folder_ / fmt::format("{}{:08}{}", kPrefix, number, kSuffix);
}

std::vector<std::uint64_t> CheckpointFolder::numbers() const {
  std::vector<std::uint64_t> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    std::uint64_t number = 0;
    const char* end = name.data() + name.size() - kSuffix.size();
    const auto result = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (result.ec == std::errc() && result.ptr == end) found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::filesystem::path CheckpointFolder::save(std::uint64_t number, const Checkpoint& checkpoint) const {
  const std::filesystem::path path = path_of(number);
  std::vector<std::uint64_t> earlier = numbers();
  try {
    write_file_atomically(path, encode_checkpoint(checkpoint));
  } catch (Error& error) {
    const std::string state = earlier.empty() ? "there is no earlier checkpoint"
                                              : fmt::format("{} is intact", path_of(earlier.back()).string());
    throw error.add_context(fmt::format("the checkpoint after epoch {} could not be saved; {}", number, state));
  }
  std::erase(earlier, number);
  // What cannot be removed does no harm; the next save tries again.
  std::error_code ignored;
  for (std::size_t i = 0; i + keep_ <= earlier.size(); ++i) std::filesystem::remove(path_of(earlier[i]), ignored);
  return path;
}

std::optional<CheckpointFolder::Found> CheckpointFolder::find_latest_valid() const {
  std::vector<std::uint64_t> candidates = numbers();
  if (candidates.empty()) return std::nullopt;
  std::reverse(candidates.begin(), candidates.end());
  std::vector<std::string> rejected;
  for (const std::uint64_t number : candidates) {
    const std::filesystem::path path = path_of(number);
    try {
      return Found{path, load_checkpoint(path), std::move(rejected)};
    } catch (const Error& error) {
      rejected.emplace_back(error.what());  // Handed to the caller, who reports it.
    }
  }
  throw Error(ErrorCode::kCorruptData, fmt::format("none of the {} checkpoints in {} can be used: {}", rejected.size(),
                                                   folder_.string(), rejected.front()));
}

}  // namespace gyre::train
