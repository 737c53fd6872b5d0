#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gyre/data/image_listing.h"
#include "gyre/data/internal/file_versions.h"
#include "gyre/data/internal/name_list.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

/// A folder with a folder for each class, as torchvision's ImageFolder: the label is the number of the class among the
/// sorted names. A sample has the features "image" (bytes) and "label". image_listing.h says what counts as a class and
/// as a sample.
class ImageFolder : public SampleSet {
 public:
  /// Reads names, no files. `classes`: names whose labels are their places in this list, a trained model's for example;
  /// folders of other names get the labels behind, sorted. Error(kNotFound, kIo), kInvalidArgument where there are no
  /// classes, (without `classes`) one has no image, or a folder belongs to two of them through a link; kUnsupported for
  /// an image of another kind.
  ImageFolder(std::string root, FileOpener open, std::vector<std::string> classes = {});

  std::uint64_t count() const override { return labels_.size(); }
  SampleBlocks blocks() const override { return {}; }
  void will_read(std::span<const std::uint64_t> samples) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

  std::vector<std::string> classes() const override { return classes_; }
  std::span<const std::uint32_t> labels() const override { return labels_; }
  std::string_view listing() const override { return names_.text(); }
  std::string name_of(std::uint64_t sample) const override { return std::string(names_.at(sample)); }
  std::string left_out() const override { return left_out_.describe(); }

 private:
  /// The class that each folder belongs to, by where it really lies; the root belongs to none.
  using ClassOfFolder = std::unordered_map<std::string, std::string>;

  /// Returns whether it holds an image.
  bool add_class(const std::string& name, std::uint32_t label, ClassOfFolder& owners);
  void refuse_sets(const std::vector<std::string>& folders) const;
  void check_classes(const std::vector<std::string>& empty, bool known) const;

  std::string root_;
  FileOpener open_;
  std::vector<std::string> classes_;
  internal::NameList names_;  // Below the root.
  std::vector<std::uint32_t> labels_;
  std::shared_ptr<internal::FileVersions> versions_;
  LeftOut left_out_;
};

/// Image files without labels: those given, and those below the folders given, at any depth. A sample has the feature
/// "image" (bytes).
class ImageFiles : public SampleSet {
 public:
  /// Reads names, no files. A file that is named itself may be called anything. Error(kNotFound, kIo),
  /// kInvalidArgument where there is no image, kUnsupported for an image of another kind.
  ImageFiles(const std::vector<std::string>& places, FileOpener open);

  std::uint64_t count() const override { return names_.size(); }
  SampleBlocks blocks() const override { return {}; }
  void will_read(std::span<const std::uint64_t> samples) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

  std::string_view listing() const override { return names_.text(); }
  /// Below the folder, if only one was given; else as it was given.
  std::string name_of(std::uint64_t sample) const override { return std::string(names_.at(sample)); }
  std::string left_out() const override { return left_out_.describe(); }

 private:
  FileOpener open_;
  std::string root_;  // Empty: names_ are paths.
  internal::NameList names_;
  std::shared_ptr<internal::FileVersions> versions_;
  LeftOut left_out_;
};

}  // namespace gyre::data
