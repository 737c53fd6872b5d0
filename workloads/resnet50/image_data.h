#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gyre/data/fields.h"
#include "gyre/data/sample_set.h"
#include "workloads/resnet50/options.h"

namespace gyre::resnet50 {

/// The images of --data-dir, and what is made of each.
struct ImageData {
  std::shared_ptr<const data::SampleSet> train;
  std::shared_ptr<const data::SampleSet> validation;
  std::int64_t classes = 0;
  std::string files;                      ///< A digest of the training files.
  std::vector<std::string> remarks;       ///< See training::ImageSets.
  std::vector<data::Field> train_fields;  ///< The image, [height, width, 3] float32, and its label, from 0.
  std::vector<data::Field> validation_fields;
};

/// Error(kNotFound) where there is nothing that looks like images; those of data::open_samples().
ImageData open_images(const Options& options);

}  // namespace gyre::resnet50
