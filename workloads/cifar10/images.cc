#include "workloads/cifar10/images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/open_samples.h"

namespace gyre::cifar10 {
namespace {

constexpr std::int64_t kCifar10Classes = 10;

training::ImageLayout layout_of(const Options& options) {
  // The whole of a square image, or the middle of another one, without a change to values that fit.
  const auto side = static_cast<std::uint32_t>(options.image_size);
  const data::ImageOptions images{.width = side, .height = side, .augment = false, .resize = side};
  return {.others =
              "CIFAR-10's files (data_batch_1.bin or data_batch_1, …, also in cifar-10-batches-bin or "
              "cifar-10-batches-py)",
          .example = "digits",
          .train_images = images,
          .test_images = images,
          .type = data::ElementType::kUint8};
}

}  // namespace

training::ImageSets open_images(const Options& options) {
  training::check_data_dir(options, "digits");
  const training::ImageLayout layout = layout_of(options);
  const std::optional<data::Cifar10Files> files = data::find_cifar10(options.files.folders(), options.data_dir);
  if (!files) return training::open_image_sets(options, layout);
  if (options.validation_share) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has CIFAR-10's test set: leave out --validation-share", files->folder.string()));
  }
  const data::SampleOptions how{.format = data::SampleFormat::kCifar10, .threads = options.threads};
  const auto train = data::open_samples(files->train, options.files, how);
  return training::completed({.train = train,
                              .test = data::open_samples(files->test, options.files, how),
                              .folder = files->folder,
                              .digests = training::digests_of(files->train, options.files, train, how),
                              .classes = kCifar10Classes},
                             options, layout);
}

at::Tensor images_of(const data::Batch& batch, std::int64_t image_size, const data::Augmentation& augmentation,
                     std::uint64_t epoch) {
  const data::RankBatch& samples = batch.samples();
  const auto side = static_cast<std::size_t>(image_size);
  const data::PlanarShape shape{.height = side, .width = side};
  const at::Tensor images = at::empty(
      {static_cast<std::int64_t>(samples.counted), static_cast<std::int64_t>(shape.channels), image_size, image_size});
  const std::size_t values = samples.counted * shape.values();
  data::augment_images(batch.field(training::kImage).first(values), shape,
                       std::span(samples.samples).first(samples.counted), augmentation, epoch,
                       {images.mutable_data_ptr<float>(), values});
  return images.contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace gyre::cifar10
