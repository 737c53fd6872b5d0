#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/file.h"

namespace gyre::data {

/// One value of one curve.
struct Scalar {
  std::string_view tag;  ///< The curve's name; "epoch/loss" puts it in the group "epoch".
  double value;
};

/// Writes scalars to a file that TensorBoard shows: `events.out.tfevents.<seconds>.<host>.<process id>` in a folder,
/// which is made when needed. Every call is one write, so a reader or a crash never sees less than what was added
/// before. Not thread-safe. Errors: kIo, kResourceExhausted, naming the file.
/// Source of the format: TFRecord framing (formats/tfrecord.h) around tensorflow/core/util/event.proto.
class TensorboardWriter {
 public:
  explicit TensorboardWriter(const std::filesystem::path& folder);

  void add_scalars(std::int64_t step, std::span<const Scalar> scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd file_;
};

/// The payload of a record with scalars, and of the record that opens a file; apart for tests.
Bytes scalar_event(double wall_time_seconds, std::int64_t step, std::span<const Scalar> scalars);
Bytes version_event(double wall_time_seconds);

}  // namespace gyre::data
