#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/fields.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/sample_set.h"

namespace gyre::training {

/// What data::open_samples() is given for the first of `sets` ("validation", "val") that `data_dir` has: the folder of
/// that name if its folders are classes, the files in that folder, or the files named SET-*. Empty where it has none.
/// Error(kNotFound) where a folder cannot be read.
std::vector<std::string> sample_files(const std::filesystem::path& data_dir, const std::vector<std::string_view>& sets);

/// The samples of these files, and what tells whether two runs read the same ones.
struct OpenedSamples {
  std::shared_ptr<const data::SampleSet> samples;
  std::string digest;
};

/// Errors are those of data::open_samples().
OpenedSamples open_with_digest(const std::vector<std::string>& files, const data::SampleOptions& how);

/// Where the two fields of image_fields() stand in a batch.
enum ImageField : std::size_t { kImage, kLabel };

/// An image of `how.height` x `how.width`, its values of `type`, and its label, from 0 (int64). Samples that have
/// ImageNet's feature names (TFRecord) are read by those. Errors are those of reading a sample.
std::vector<data::Field> image_fields(const data::SampleSet& set, const data::ImageOptions& how,
                                      data::ElementType type);

/// The number of classes: as many as the folders of `set`, which have to be those of `test` (Error(kMismatch)); or
/// `otherwise` where the data does not say.
std::int64_t class_count(const data::SampleSet& set, const data::SampleSet& test, std::int64_t otherwise,
                         const std::filesystem::path& data_dir);

/// Error(kInvalidArgument) for a label that the network has no class for.
void check_labels(const at::Tensor& labels, std::int64_t classes);

}  // namespace gyre::training
