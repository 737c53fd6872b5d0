#include "workloads/resnet50/image_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/parquet_set.h"
#include "workloads/training/image_samples.h"

namespace gyre::resnet50 {
namespace {

// torchvision's, of ImageNet.
constexpr std::array<float, 3> kMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kDeviation = {0.229F, 0.224F, 0.225F};
training::OpenedSamples open_set(const Options& options, const std::vector<std::string_view>& sets) {
  const std::vector<std::string> files = training::sample_files(options.data_dir, sets);
  if (files.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format(
            "{} has neither a folder {} nor files {}-*; `python -m gyre.datasets imagenet` writes such a data set",
            options.data_dir.string(), fmt::join(sets, " or "), sets.front()));
  }
  return training::open_with_digest(
      files, {.threads = options.threads, .pyarrow_folder = data::pyarrow_folder_from_environment()});
}

data::ImageOptions image_options(const Options& options, bool augment) {
  const auto side = static_cast<std::uint32_t>(options.image_size);
  return {.width = side,
          .height = side,
          .augment = augment,
          .resize = static_cast<std::uint32_t>(std::lround(side * 8 / 7.0)),
          .channels_first = false,
          .mean = kMean,
          .deviation = kDeviation};
}

}  // namespace

ImageData open_images(const Options& options) {
  ImageData found;
  training::OpenedSamples train = open_set(options, {"train"});
  found.train = std::move(train.samples);
  found.files = std::move(train.digest);
  found.validation = open_set(options, {"validation", "val"}).samples;
  found.classes = training::class_count(*found.train, *found.validation, options.network.classes, options.data_dir);
  found.train_fields = training::image_fields(*found.train, image_options(options, true), data::ElementType::kFloat32);
  found.validation_fields =
      training::image_fields(*found.validation, image_options(options, false), data::ElementType::kFloat32);
  return found;
}

}  // namespace gyre::resnet50
