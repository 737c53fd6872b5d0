#include "workloads/cifar10/image_data.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/open_samples.h"
#include "workloads/training/image_samples.h"

namespace gyre::cifar10 {
namespace {

constexpr std::int64_t kCifar10Classes = 10;

training::ImageSource source_of(const Options& options) {
  return {.data_dir = options.data_dir,
          .validation_sets = {"test", "validation", "val", "t10k"},
          .validation_share = options.validation_share,
          .seed = options.seed,
          .threads = options.threads,
          .others =
              "CIFAR-10's files (data_batch_1.bin or data_batch_1, …, also in cifar-10-batches-bin or "
              "cifar-10-batches-py)",
          .example = "python -m gyre.datasets digits --out " + options.data_dir.string()};
}

training::OpenedSamples open_cifar10(const std::vector<std::string>& files, const Options& options) {
  return training::open_with_digest(files, {.format = data::SampleFormat::kCifar10, .threads = options.threads});
}

/// The whole of a square image, or the middle of another one, without a change to values that fit.
data::ImageOptions image_options(const Options& options) {
  const auto side = static_cast<std::uint32_t>(options.image_size);
  return {.width = side, .height = side, .augment = false, .resize = side};
}

}  // namespace

ImageData open_images(const Options& options) {
  ImageData found;
  if (const std::optional<data::Cifar10Files> files = data::find_cifar10(options.data_dir)) {
    if (options.validation_share) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has CIFAR-10's test set: leave out --validation-share", files->folder.string()));
    }
    training::OpenedSamples train = open_cifar10(files->train, options);
    found.train = std::move(train.samples);
    found.files = std::move(train.digest);
    found.test = open_cifar10(files->test, options).samples;
    found.folder = files->folder;
    found.classes = kCifar10Classes;
  } else {
    training::ImageSets sets = training::open_image_sets(source_of(options));
    found.train = std::move(sets.train);
    found.test = std::move(sets.validation);
    found.files = std::move(sets.digest);
    found.remarks = std::move(sets.remarks);
    found.folder = options.data_dir;
    found.classes = training::class_count(*found.train, *found.test, options.classes, options.data_dir);
  }
  found.train_fields = training::image_fields(*found.train, image_options(options), data::ElementType::kUint8);
  found.test_fields = training::image_fields(*found.test, image_options(options), data::ElementType::kUint8);
  return found;
}

Batch make_batch(const data::Batch& read, std::int64_t image_size, std::int64_t classes,
                 const data::Augmentation& augmentation, std::uint64_t epoch) {
  const data::RankBatch& samples = read.samples();
  const auto count = static_cast<std::int64_t>(samples.counted);
  const auto side = static_cast<std::size_t>(image_size);
  const data::PlanarShape shape{.height = side, .width = side};
  const at::Tensor images = at::empty({count, static_cast<std::int64_t>(shape.channels), image_size, image_size});
  const std::size_t values = samples.counted * shape.values();
  data::augment_images(read.field(training::kImage).first(values), shape,
                       std::span(samples.samples).first(samples.counted), augmentation, epoch,
                       {images.mutable_data_ptr<float>(), values});
  at::Tensor labels = at::from_blob(read.field(training::kLabel).data(), {count}, at::TensorOptions(at::kLong)).clone();
  training::check_labels(labels, classes);
  return {images.contiguous(at::MemoryFormat::ChannelsLast), std::move(labels)};
}

}  // namespace gyre::cifar10
