#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/fields.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/sample_set.h"

namespace gyre::training {

/// What data::open_samples() is given for the first of `sets` ("validation", "val") that `data_dir` has: what
/// data::files_of_folder() finds in the folder of that name, or the files named SET-*. Empty where it has none.
/// Error(kNotFound) where a folder cannot be read.
std::vector<std::string> sample_files(const std::filesystem::path& data_dir, const std::vector<std::string_view>& sets);

/// Where a program finds its images.
struct ImageSource {
  std::filesystem::path data_dir;                 ///< With a set "train", …
  std::vector<std::string_view> validation_sets;  ///< … and one of these.
  /// Hold out so much of each class instead, of "train" or of the class folders in `data_dir` itself, as `seed` says.
  std::optional<double> validation_share{};
  std::uint64_t seed = 0;
  int threads = 1;
  std::string others{};   ///< In messages: what else it could have had ("neither … nor").
  std::string example{};  ///< In messages: a command that writes such a data set.
};

struct ImageSets {
  std::shared_ptr<const data::SampleSet> train;
  std::shared_ptr<const data::SampleSet> validation;  ///< Its labels are those of the classes of `train`.
  std::string digest;                                 ///< Of the training files.
  /// What a person should know, in lines: what was left out of the folders, and classes without a validation image.
  std::vector<std::string> remarks{};
};

/// Error(kNotFound) where a set is missing, kInvalidArgument where there is one beside `validation_share`; those of
/// data::open_samples() and data::split_set().
ImageSets open_image_sets(const ImageSource& source);

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
/// ImageNet's feature names (TFRecord) are read by those. Errors are those of reading a sample; kInvalidArgument where
/// it has no label.
std::vector<data::Field> image_fields(const data::SampleSet& set, const data::ImageOptions& how,
                                      data::ElementType type);

/// The number of classes: as many as the folders of `set`, among which those of `test` have to be (Error(kMismatch));
/// or `otherwise` where the data does not say. Error(kInvalidArgument) for a single one.
std::int64_t class_count(const data::SampleSet& set, const data::SampleSet& test, std::int64_t otherwise,
                         const std::filesystem::path& data_dir);

/// Error(kInvalidArgument) for a label that the network has no class for.
void check_labels(const at::Tensor& labels, std::int64_t classes);

}  // namespace gyre::training
