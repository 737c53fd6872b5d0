#include "workloads/resnet50/image_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "gyre/base/error.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/readable_file.h"

namespace gyre::resnet50 {
namespace {

namespace fs = std::filesystem;

// torchvision's, of ImageNet.
constexpr std::array<float, 3> kMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kDeviation = {0.229F, 0.224F, 0.225F};
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

/// What open_samples() is given: the shards of one folder, or of a folder for each set, or an image folder.
std::vector<std::string> names_of(const fs::path& data_dir, const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    if (fs::is_directory(data_dir / set)) {
      std::vector<std::string> shards = files_in(data_dir / set, "");
      return shards.empty() ? std::vector{(data_dir / set).string()} : shards;
    }
    std::vector<std::string> shards = files_in(data_dir, set + "-");
    if (!shards.empty()) return shards;
  }
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("{} has neither a folder {} nor files {}-*; `python -m gyre.datasets imagenet` makes such a set",
                  data_dir.string(), fmt::join(sets, " or "), sets.front()));
}

std::vector<data::Field> fields_of(const data::SampleSet& set, const Options& options, bool augment) {
  const auto reader = set.make_reader(std::make_shared<data::MemoryBudget>(kProbeBytes));
  data::StageTimes times;
  const bool imagenet = reader->read_sample(0, times).find("image/encoded") != nullptr;
  const auto side = static_cast<std::uint32_t>(options.image_size);
  data::Field image{.name = "image",
                    .kind = data::FeatureKind::kBytes,
                    .type = data::ElementType::kFloat32,
                    .shape = {side, side, 3},
                    .feature = imagenet ? "image/encoded" : "",
                    .image = data::ImageOptions{.width = side,
                                                .height = side,
                                                .augment = augment,
                                                .resize = static_cast<std::uint32_t>(std::lround(side * 8 / 7.0)),
                                                .channels_first = false,
                                                .mean = kMean,
                                                .deviation = kDeviation}};
  data::Field label{.name = "label",
                    .kind = data::FeatureKind::kInts,
                    .stored = data::ElementType::kInt64,
                    .type = data::ElementType::kInt64,
                    .shape = {},
                    .feature = imagenet ? "image/class/label" : "",
                    .offset = imagenet ? -1 : 0};
  return {std::move(image), std::move(label)};
}

}  // namespace

ImageData open_images(const Options& options) {
  const data::SampleOptions how{.threads = options.threads};
  ImageData found;
  found.train = data::open_samples(names_of(options.data_dir, {"train"}), data::open_local_file, how);
  found.validation = data::open_samples(names_of(options.data_dir, {"validation", "val"}), data::open_local_file, how);
  if (found.train->classes() != found.validation->classes()) {
    throw Error(ErrorCode::kMismatch, fmt::format("{}: train and validation have different classes: {} and {} folders",
                                                  options.data_dir.string(), found.train->classes().size(),
                                                  found.validation->classes().size()));
  }
  found.train_fields = fields_of(*found.train, options, true);
  found.validation_fields = fields_of(*found.validation, options, false);
  return found;
}

}  // namespace gyre::resnet50
