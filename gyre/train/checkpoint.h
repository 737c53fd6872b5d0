#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"

namespace gyre::train {

/// A larger file is refused before it is read.
inline constexpr std::uint64_t kMostCheckpointBytes = std::uint64_t{64} << 30;

/// One tensor of a checkpoint: its elements in row-major order, little-endian.
struct CheckpointTensor {
  std::string name;                  ///< Unique in its checkpoint.
  std::string type;                  ///< "float32", "int64", …: the names of docs/formats/checkpoint.md.
  std::vector<std::int64_t> shape;   ///< Empty for a scalar.
  std::span<const std::byte> bytes;  ///< The caller's memory when saving, `Checkpoint::storage` when loaded.
};

/// What a training run needs to go on as if it had never stopped.
struct Checkpoint {
  /// Epoch, step, seeds, options: names and values as text. "format", "checksum" and "gyre_checkpoint" are taken.
  std::map<std::string, std::string> metadata;
  std::vector<CheckpointTensor> tensors;
  Bytes storage;  ///< The file's bytes, when loaded.

  /// Error(kCorruptData) when there is no such entry.
  const CheckpointTensor& tensor(std::string_view name) const;
  bool has_tensor(std::string_view name) const;
  const std::string& value(const std::string& name) const;
};

/// The file's bytes, which are safetensors (docs/formats/checkpoint.md), and back. decode verifies everything: size,
/// version, checksum, names, types, shapes and places; Error(kCorruptData) says whether the file was cut short or
/// damaged, and names it.
Bytes encode_checkpoint(const Checkpoint& checkpoint);
Checkpoint decode_checkpoint(Bytes bytes, std::string_view name);

Checkpoint load_checkpoint(const std::filesystem::path& path);

/// A folder with the checkpoints of one run: checkpoint-000000000012.safetensors after 12 samples. The number grows as
/// the run does, whatever its ranks and batches, so the largest is the newest. For one process at a time (rank 0).
class CheckpointFolder {
 public:
  /// Makes the folder when needed. `keep`, at least 1: how many of the newest checkpoints stay.
  CheckpointFolder(std::filesystem::path folder, std::size_t keep);

  /// Writes atomically, then removes what is older than the newest `keep`. When it throws (disk full, …) all earlier
  /// checkpoints are untouched, and the message says which is the newest.
  std::filesystem::path save(std::uint64_t number, const Checkpoint& checkpoint) const;

  struct Found {
    std::uint64_t number = 0;
    std::filesystem::path path;
    Checkpoint checkpoint;
    std::vector<std::string> rejected;  ///< Newer files that cannot be used, and why.
  };
  /// The newest checkpoint that is whole, and for which `check` throws no Error; nothing when the folder holds none at
  /// all. Error(kCorruptData) when none of those that are there can be used.
  std::optional<Found> find_latest_valid(const std::function<void(const Checkpoint&)>& check = {}) const;

  /// The numbers of the checkpoints that are there, whole or not, ascending.
  std::vector<std::uint64_t> numbers() const;
  std::filesystem::path path_of(std::uint64_t number) const { return path_in(folder_, number); }
  static std::filesystem::path path_in(const std::filesystem::path& folder, std::uint64_t number);

 private:
  /// By number. Names of earlier versions have fewer digits.
  std::map<std::uint64_t, std::filesystem::path> files() const;

  std::filesystem::path folder_;
  std::size_t keep_;
};

}  // namespace gyre::train
