#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/formats/tar.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/internal/name_list.h"
#include "gyre/data/internal/open_files.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

/// Tar archives in the layout of webdataset: neighbours that are called alike up to the first dot of the file's name
/// are one sample, and what follows the dot, in lower case, names the feature: "000017.jpg", "000017.cls". "cls",
/// "cls2", "class", "count", "index", "inx" and "id" are integers where their text is one; of "json" the integers of
/// the outermost object are features as well, "json/NAME". "image" is another name of jpg, jpeg or png (or of an image
/// of another kind, which the decoder refuses by name), and "label" of cls, and "__key__" is what the sample's files
/// are called up to the first dot.
class TarSet : public SampleSet {
 public:
  /// Reads the headers of all archives, on `threads` threads. Errors are those of index_tar(), and kCorruptData for two
  /// files of one name in a sample; kInvalidArgument without samples.
  TarSet(std::vector<std::string> names, FileOpener open, int threads);

  std::uint64_t count() const override { return samples_.empty() ? 0 : samples_.size() - 1; }
  SampleBlocks blocks() const override;
  /// Of the names and sizes of all files, and the contents of the short ones, as labels are.
  std::uint64_t contents_checksum() const override;
  std::string name_of(std::uint64_t sample) const override;
  void will_read(std::span<const std::uint64_t> samples) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  class Reader;

  struct Archive {
    std::size_t file = 0;  ///< Among the names that were given.
    std::string name;
    std::uint64_t first = 0;  ///< Sample.
  };
  struct Part {
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t feature = 0;  ///< In features_.
  };

  std::uint64_t contents_checksum_of(std::size_t archive) const;
  void add_archive(std::size_t file, const std::string& name, const std::vector<TarMember>& members);
  /// Of one sample, in its archive.
  std::span<const Part> parts_of(std::uint64_t sample) const;
  /// From the first byte of the first of a sample's parts to the last byte of the last.
  static FileRange range_of(std::span<const Part> parts);
  std::uint32_t feature_number(const std::string& name);
  std::size_t archive_of(std::uint64_t sample) const;
  /// Behind its last sample.
  std::uint64_t end_of(std::size_t archive) const;

  mutable internal::OpenFiles open_files_;
  std::vector<Archive> archives_;
  std::vector<std::string> features_;
  std::vector<ImageName> feature_images_;  // What each would be as a file's name.
  std::vector<Part> parts_;
  internal::NameList keys_;             // Of all samples.
  std::vector<std::uint64_t> samples_;  // The first part of each, and the end.
};

}  // namespace gyre::data
