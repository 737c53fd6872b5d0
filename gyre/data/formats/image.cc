#include "gyre/data/formats/image.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

constexpr std::string_view kJpegStart = "\xff\xd8\xff";
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n";

struct Signature {
  std::string_view start;
  std::string_view name;
};
constexpr std::array kOthers = {
    Signature{"GIF8", "a GIF image"},      Signature{"RIFF", "a WebP image (or another RIFF file)"},
    Signature{"BM", "a BMP image"},        Signature{"II*", "a TIFF image"},
    Signature{"MM", "a TIFF image"},       Signature{"\x1f\x8b", "gzip data"},
    Signature{"P5", "a PGM image"},        Signature{"P6", "a PPM image"},
    Signature{"<", "a text such as HTML"}, Signature{"{", "a text such as JSON"},
};

std::string_view look_of(std::string_view text) {
  if (text.empty()) return "empty";
  for (const Signature& other : kOthers) {
    if (text.starts_with(other.start)) return other.name;
  }
  return "of no known kind";
}

}  // namespace

bool looks_like_image(std::span<const std::byte> first) {
  return as_text(first).starts_with(kJpegStart) || as_text(first).starts_with(kPngStart);
}

ImageSize ImageDecoder::open(std::span<const std::byte> stored) {
  const std::string_view text = as_text(stored);
  is_jpeg_ = text.starts_with(kJpegStart);
  if (is_jpeg_) return jpeg_.open(stored);
  if (text.starts_with(kPngStart)) return png_.open(stored);
  throw Error(ErrorCode::kUnsupported, fmt::format("the {} bytes are neither a JPEG nor a PNG image; they are {}",
                                                   stored.size(), look_of(text)));
}

unsigned ImageDecoder::divisor(double most) const {
  unsigned divisor = 1;
  while (is_jpeg_ && divisor < 8 && 2 * divisor <= most) divisor *= 2;
  return divisor;
}

Pixels ImageDecoder::decode(const PixelRegion& region, unsigned divisor, ScratchBuffer& buffer) {
  return is_jpeg_ ? jpeg_.decode(region, divisor, buffer) : png_.decode(region, buffer);
}

}  // namespace gyre::data
