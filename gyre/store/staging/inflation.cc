#include "gyre/store/staging/inflation.h"

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/inflate_stream.h"
#include "gyre/data/readable_file.h"
#include "gyre/store/staging/stage_folder.h"

namespace gyre::store {

namespace {

constexpr std::size_t kPieceBytes = 4 << 20;

/// Errors of the decompressor then name the object, not the part that lies on the disk.
class Renamed : public data::ReadableFile {
 public:
  Renamed(const std::filesystem::path& path, std::string name)
      : file_(data::open_local_file(path.string())), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size_bytes() const override { return file_->size_bytes(); }
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    file_->read_at(offset_bytes, into);
  }

 private:
  std::unique_ptr<const data::ReadableFile> file_;
  std::string name_;
};

}  // namespace

WrittenFile inflate_file(const std::filesystem::path& stored, data::Compression compression,
                         const std::filesystem::path& written, const std::string& name) {
  const Renamed file(stored, name);
  data::InflateStream stream(file, compression);
  const UniqueFd fd = open_for_writing(written, true);
  Bytes piece(kPieceBytes);
  WrittenFile result;
  for (;;) {
    const std::size_t count = stream.read(piece);
    if (count == 0) return result;
    const auto bytes = std::span(piece).first(count);
    write_at(fd.get(), bytes, result.bytes, written);
    begin_writeback(fd.get());
    result.crc32c = crc32c(bytes, result.crc32c);
    result.bytes += count;
  }
}

}  // namespace gyre::store
