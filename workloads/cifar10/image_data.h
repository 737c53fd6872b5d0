#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gyre/data/fields.h"
#include "gyre/data/image_augmentation.h"
#include "gyre/data/loader.h"
#include "gyre/data/sample_set.h"
#include "workloads/cifar10/options.h"

namespace gyre::cifar10 {

/// The images of --data-dir. In a batch they are planes of bytes, --image-size along each side.
struct ImageData {
  std::shared_ptr<const data::SampleSet> train;
  std::shared_ptr<const data::SampleSet> test;
  std::filesystem::path folder;  ///< Where they were found.
  std::int64_t classes = 0;
  std::string files;                 ///< A digest of the training files.
  std::vector<std::string> remarks;  ///< See training::ImageSets.
  std::vector<data::Field> train_fields;
  std::vector<data::Field> test_fields;
};

/// CIFAR-10's files, or images in folders and shards. Errors are those of training::open_image_sets().
ImageData open_images(const Options& options);

struct Batch {
  at::Tensor images;  ///< [n, 3, size, size], 0 to 1; channels last in memory: convolutions are faster that way.
  at::Tensor labels;  ///< [n], from 0.
};

/// The samples of `read` that count, changed as `augmentation` says. Error(kInvalidArgument) for a label out of range.
Batch make_batch(const data::Batch& read, std::int64_t image_size, std::int64_t classes,
                 const data::Augmentation& augmentation, std::uint64_t epoch);

}  // namespace gyre::cifar10
