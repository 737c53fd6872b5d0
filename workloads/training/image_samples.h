#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/fields.h"
#include "gyre/data/loader.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/sample_set.h"
#include "workloads/training/image_options.h"
#include "workloads/training/sample_digests.h"

namespace gyre::training {

/// Where the two fields of an image stand in a batch.
enum ImageField : std::size_t { kImage, kLabel };

/// How a program has its images.
struct ImageLayout {
  std::string others{};        ///< In messages: what it could have instead of sets of any name.
  std::string_view example{};  ///< In messages: a data set of gyre.datasets.
  data::ImageOptions train_images{};
  data::ImageOptions test_images{};
  data::ElementType type = data::ElementType::kFloat32;  ///< Of their values in a batch.
};

struct ImageSets {
  std::shared_ptr<const data::SampleSet> train;
  std::shared_ptr<const data::SampleSet> test;  ///< Its labels are those of the classes of `train`.
  std::string_view test_name = "test";          ///< What it is: a "test" set or a "validation" set.
  std::filesystem::path folder{};               ///< Where they were found.
  DigestSamples digests;                        ///< Of the training samples.
  std::int64_t classes = 0;
  std::vector<data::Field> train_fields{};  ///< By ImageField. Labels count from 0 (int64).
  std::vector<data::Field> test_fields{};
  /// What a person should know, in lines: which sets were found and left aside, the classes, what was left out of the
  /// folders, classes without a test image, and why the training images are shuffled in blocks.
  std::vector<std::string> remarks{};
};

/// The images of the sets that data::find_data_sets() finds in `options.data_dir`. Error(kNotFound) where one is
/// missing, kInvalidArgument where there is a validation set beside `options.validation_share`, or a single class;
/// kMismatch where the sets have different classes; those of data::find_data_sets(), data::open_samples() and
/// data::split_set().
ImageSets open_image_sets(const ImageProgramOptions& options, const ImageLayout& layout);

/// Adds what follows from sets that are open: fields and remarks. Samples that have ImageNet's feature names (TFRecord)
/// are read by those. Errors are those of reading a sample; kInvalidArgument where it has no label.
ImageSets completed(ImageSets sets, const ImageProgramOptions& options, const ImageLayout& layout);

/// How many images and classes there are, and the remarks, in lines.
std::string describe(const ImageSets& sets, std::string_view program);

/// The labels of the samples of `batch` that count, in its memory. Error(kInvalidArgument) for one that a network of so
/// many classes does not have.
at::Tensor labels_of(const data::Batch& batch, std::int64_t classes);

}  // namespace gyre::training
