#include "workloads/resnet50/image_data.h"

#include <array>
#include <cmath>
#include <utility>

#include "workloads/training/image_samples.h"

namespace gyre::resnet50 {
namespace {

// torchvision's, of ImageNet.
constexpr std::array<float, 3> kMean = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> kDeviation = {0.229F, 0.224F, 0.225F};

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
  training::ImageSets sets =
      training::open_image_sets({.data_dir = options.data_dir,
                                 .validation_sets = {"validation", "val"},
                                 .validation_share = options.validation_share,
                                 .seed = options.seed,
                                 .threads = options.threads,
                                 .example = "python -m gyre.datasets imagenet --out " + options.data_dir.string()});
  found.train = std::move(sets.train);
  found.validation = std::move(sets.validation);
  found.files = std::move(sets.digest);
  found.remarks = std::move(sets.remarks);
  found.classes = training::class_count(*found.train, *found.validation, options.network.classes, options.data_dir);
  found.train_fields = training::image_fields(*found.train, image_options(options, true), data::ElementType::kFloat32);
  found.validation_fields =
      training::image_fields(*found.validation, image_options(options, false), data::ElementType::kFloat32);
  return found;
}

}  // namespace gyre::resnet50
