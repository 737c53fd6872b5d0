#include "workloads/training/image_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"
#include "gyre/data/readable_file.h"

namespace gyre::training {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kProbeBytes = std::uint64_t{1} << 30;

/// The regular files of a folder whose names begin so, sorted.
std::vector<std::string> files_in(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    if (entry.is_regular_file(problem) && entry.path().filename().string().starts_with(prefix)) {
      names.push_back(entry.path().string());
    }
  }
  if (problem) throw Error(ErrorCode::kNotFound, fmt::format("{}: {}", folder.string(), problem.message()));
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::vector<std::string> sample_files(const fs::path& data_dir, const std::vector<std::string_view>& sets) {
  for (const std::string_view set : sets) {
    if (fs::is_directory(data_dir / set)) {
      std::vector<std::string> shards = files_in(data_dir / set, "");
      return shards.empty() ? std::vector{(data_dir / set).string()} : shards;
    }
    std::vector<std::string> shards = files_in(data_dir, std::string(set) + "-");
    if (!shards.empty()) return shards;
  }
  return {};
}

OpenedSamples open_with_digest(const std::vector<std::string>& files, const data::SampleOptions& how) {
  auto samples = data::open_samples(files, data::open_local_file, how);
  return {samples, fmt::format("{:016x}", data::files_checksum(files, data::open_local_file, *samples, how))};
}

std::vector<data::Field> image_fields(const data::SampleSet& set, const data::ImageOptions& how,
                                      data::ElementType type) {
  const auto reader = set.make_reader(std::make_shared<data::MemoryBudget>(kProbeBytes));
  data::StageTimes times;
  const bool imagenet = reader->read_sample(0, times).find("image/encoded") != nullptr;
  const std::vector<std::uint64_t> planes = {3, how.height, how.width};
  const std::vector<std::uint64_t> interleaved = {how.height, how.width, 3};
  data::Field image{.name = "image",
                    .kind = data::FeatureKind::kBytes,
                    .type = type,
                    .shape = how.channels_first ? planes : interleaved,
                    .feature = imagenet ? "image/encoded" : "",
                    .image = how};
  data::Field label{.name = "label",
                    .kind = data::FeatureKind::kInts,
                    .stored = data::ElementType::kInt64,
                    .type = data::ElementType::kInt64,
                    .shape = {},
                    .feature = imagenet ? "image/class/label" : "",
                    .offset = imagenet ? -1 : 0};
  return {std::move(image), std::move(label)};
}

std::int64_t class_count(const data::SampleSet& set, const data::SampleSet& test, std::int64_t otherwise,
                         const fs::path& data_dir) {
  const std::vector<std::string> classes = set.classes();
  if (classes != test.classes()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{}: the training and test sets have different classes: {} and {} folders",
                            data_dir.string(), classes.size(), test.classes().size()));
  }
  return classes.empty() ? otherwise : static_cast<std::int64_t>(classes.size());
}

void check_labels(const at::Tensor& labels, std::int64_t classes) {
  const auto highest = labels.max().item<std::int64_t>();
  const auto lowest = labels.min().item<std::int64_t>();
  if (lowest >= 0 && highest < classes) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a sample has the label {}, and the network has {} classes, counted from 0: see --classes",
                          lowest < 0 ? lowest : highest, classes));
}

}  // namespace gyre::training
