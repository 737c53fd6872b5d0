#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

/// A folder with a folder for each class, as torchvision's ImageFolder: the label is the number of the class among the
/// sorted names. A sample has the features "image" (bytes) and "label". Files that are neither .jpg, .jpeg nor .png are
/// passed over, except images of other kinds, which are an error; folders within a class's folder belong to the class.
class ImageFolder : public SampleSet {
 public:
  /// Reads names, no files. Error(kNotFound, kIo), kInvalidArgument where there are no classes or one has no image,
  /// kUnsupported for an image of another kind.
  ImageFolder(std::string root, FileOpener open);

  std::uint64_t count() const override { return labels_.size(); }
  SampleBlocks blocks() const override { return {}; }
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

  std::vector<std::string> classes() const override { return classes_; }
  std::string_view listing() const override { return names_; }

 private:
  class Reader;

  void add_class(const std::string& name);
  /// Below the root.
  std::string_view name_of(std::uint64_t sample) const;

  std::string root_;
  FileOpener open_;
  std::vector<std::string> classes_;
  // One string for all: a million strings would take twice as much.
  std::string names_;
  std::vector<std::uint64_t> ends_;  // Of each name.
  std::vector<std::uint32_t> labels_;
};

}  // namespace gyre::data
