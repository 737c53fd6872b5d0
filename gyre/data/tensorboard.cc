#include "gyre/data/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/internal/protobuf_writer.h"

namespace gyre::data {
namespace {

// The fields of Event, Summary and Summary.Value that are written.
constexpr std::uint32_t kEventWallTime = 1;
constexpr std::uint32_t kEventStep = 2;
constexpr std::uint32_t kEventFileVersion = 3;
constexpr std::uint32_t kEventSummary = 5;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1;
constexpr std::uint32_t kValueSimpleValue = 2;

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

double now_seconds() { return static_cast<double>(wall_clock_us()) * 1e-6; }

}  // namespace

Bytes version_event(double wall_time_seconds) {
  ProtobufWriter event;
  event.double_field(kEventWallTime, wall_time_seconds);
  event.bytes_field(kEventFileVersion, as_bytes("brain.Event:2"));
  return event.take();
}

Bytes scalar_event(double wall_time_seconds, std::int64_t step, std::span<const Scalar> scalars) {
  ProtobufWriter summary;
  for (const Scalar& scalar : scalars) {
    ProtobufWriter value;
    value.bytes_field(kValueTag, as_bytes(scalar.tag));
    value.float_field(kValueSimpleValue, static_cast<float>(scalar.value));
    summary.bytes_field(kSummaryValue, value.take());
  }
  ProtobufWriter event;
  event.double_field(kEventWallTime, wall_time_seconds);
  event.varint_field(kEventStep, static_cast<std::uint64_t>(step));
  event.bytes_field(kEventSummary, summary.take());
  return event.take();
}

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw system_error(fmt::format("cannot make the folder {}", folder.string()), failure.value());
  const std::string name =
      fmt::format("events.out.tfevents.{}.{}.{}", wall_clock_us() / 1'000'000, host_name(), ::getpid());
  // Two writers of one process within one second would meet: the later one counts on.
  for (int attempt = 0; !file_; ++attempt) {
    path_ = folder / (attempt == 0 ? name : fmt::format("{}.{}", name, attempt));
    file_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!file_ && errno != EEXIST) throw system_error(fmt::format("cannot write {}", path_.string()), errno);
  }
  write_all(file_.get(), framed_tfrecord(version_event(now_seconds())), fmt::format("cannot write {}", path_.string()));
}

void TensorboardWriter::add_scalars(std::int64_t step, std::span<const Scalar> scalars) {
  write_all(file_.get(), framed_tfrecord(scalar_event(now_seconds(), step, scalars)),
            fmt::format("cannot write {}", path_.string()));
}

}  // namespace gyre::data
