#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gyre/data/image_augmentation.h"
#include "gyre/data/loader.h"
#include "workloads/cifar10/options.h"
#include "workloads/training/image_samples.h"

namespace gyre::cifar10 {

/// CIFAR-10's files, or images in folders and shards; in a batch they are planes of bytes, --image-size along each
/// side. Errors are those of training::open_image_sets().
training::ImageSets open_images(const Options& options);

/// The images of `batch` that count, changed as `augmentation` says: [n, 3, size, size], 0 to 1, channels last in
/// memory, because convolutions are faster that way.
at::Tensor images_of(const data::Batch& batch, std::int64_t image_size, const data::Augmentation& augmentation,
                     std::uint64_t epoch);

}  // namespace gyre::cifar10
