#include "gyre/data/formats/jpeg.h"

// libjpeg's headers need size_t and FILE before them.
#include <cstdio>
// Then libjpeg's.
#include <jpeglib.h>
// After jpeglib.h.
#include <fmt/format.h>
#include <jerror.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdlib>
#include <string>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

constexpr int kMostScans = 500;       // Of a progressive image; some hundred bytes can ask for thousands.
constexpr std::uint32_t kMargin = 2;  // Pixels that smooth chroma takes into account beyond the region.
constexpr std::size_t kCmykBytes = 4;

/// Where libjpeg jumps to when it gives up, and what it says. Only objects without destructors may live between
/// attempt() and the jump.
struct Escape {
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
};

[[noreturn]] void give_up(j_common_ptr common) {
  auto* const escape = reinterpret_cast<Escape*>(common->err);
  common->err->format_message(common, escape->message.data());
  std::longjmp(escape->jump, 1);  // NOLINT(cert-err52-cpp): libjpeg's only way out; an exception cannot pass through C.
}

/// libjpeg calls damage a warning, and goes on with gray pixels. What harms no pixel stays a warning.
void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;
  switch (common->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_JPEG_EOF: give_up(common);
    default: ++common->err->num_warnings;
  }
}

void on_output(j_common_ptr /*common*/) {}

jpeg_error_mgr* install(Escape& escape) {
  jpeg_std_error(&escape.errors);
  escape.errors.error_exit = give_up;
  escape.errors.emit_message = on_message;
  escape.errors.output_message = on_output;
  return &escape.errors;
}

/// False where libjpeg gave up in `work`, which must hold nothing that has a destructor.
template <typename Work>
bool attempt(Escape& escape, const Work& work) {
  if (setjmp(escape.jump) != 0) return false;  // NOLINT(cert-err52-cpp): see give_up().
  work();
  return true;
}

void nothing(j_decompress_ptr /*decompress*/) {}

boolean no_more_bytes(j_decompress_ptr decompress) {
  ERREXIT(decompress, JERR_INPUT_EOF);
  return FALSE;
}

void skip_bytes(j_decompress_ptr decompress, long count) {
  if (count <= 0) return;
  jpeg_source_mgr& source = *decompress->src;
  if (static_cast<std::size_t>(count) > source.bytes_in_buffer) ERREXIT(decompress, JERR_INPUT_EOF);
  source.next_input_byte += count;
  source.bytes_in_buffer -= static_cast<std::size_t>(count);
}

void limit_scans(j_common_ptr common) {
  auto* const decompress = reinterpret_cast<j_decompress_ptr>(common);
  if (decompress->input_scan_number > kMostScans) ERREXIT(common, JERR_BAD_PROGRESSION);
}

std::uint8_t product(unsigned a, unsigned b) { return static_cast<std::uint8_t>((a * b + 127) / 255); }

/// Programs of Adobe's store the complement of each ink.
void cmyk_to_rgb(const std::uint8_t* from, std::size_t count, bool complement, std::uint8_t* into) {
  for (std::size_t i = 0; i < count; ++i, from += kCmykBytes, into += kPixelBytes) {
    for (std::size_t c = 0; c < kPixelBytes; ++c) {
      into[c] = complement ? product(from[c], from[3]) : product(255U - from[c], 255U - from[3]);
    }
  }
}

}  // namespace

struct JpegDecoder::State {
  explicit State(std::uint64_t most) : most_pixels(most) {
    decompress.err = install(escape);
    if (!attempt(escape, [this] { jpeg_create_decompress(&decompress); })) throw std::bad_alloc();
    source.init_source = nothing;
    source.fill_input_buffer = no_more_bytes;
    source.skip_input_data = skip_bytes;
    source.resync_to_restart = jpeg_resync_to_restart;
    source.term_source = nothing;
    decompress.src = &source;
    progress.progress_monitor = limit_scans;
    decompress.progress = &progress;
  }
  ~State() { jpeg_destroy_decompress(&decompress); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[noreturn]] void fail() {
    const int code = escape.errors.msg_code;
    std::string text = escape.message.data();
    jpeg_abort_decompress(&decompress);
    if (code == JERR_INPUT_EOF) text = "the data end too early";
    const bool unsupported = code == JERR_ARITH_NOTIMPL || code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED ||
                             code == JERR_CONVERSION_NOTIMPL;
    throw Error(unsupported ? ErrorCode::kUnsupported : ErrorCode::kCorruptData,
                fmt::format("the JPEG image cannot be decoded: {}", text));
  }

  /// What libjpeg keeps of a progressive image: all coefficients.
  std::uint64_t coefficient_bytes() const {
    if (!decompress.progressive_mode && decompress.comps_in_scan == decompress.num_components) return 0;
    std::uint64_t blocks = 0;
    for (int i = 0; i < decompress.num_components; ++i) {
      const jpeg_component_info& component = decompress.comp_info[i];
      blocks += std::uint64_t{component.width_in_blocks} * component.height_in_blocks;
    }
    return blocks * DCTSIZE2 * sizeof(JCOEF);
  }

  Escape escape;
  jpeg_decompress_struct decompress{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::uint64_t most_pixels;
};

JpegDecoder::JpegDecoder(std::uint64_t most_pixels) : state_(std::make_unique<State>(most_pixels)) {}
JpegDecoder::~JpegDecoder() = default;
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;
JpegDecoder& JpegDecoder::operator=(JpegDecoder&&) noexcept = default;

ImageSize JpegDecoder::open(std::span<const std::byte> stored) {
  jpeg_decompress_struct& decompress = state_->decompress;
  jpeg_abort_decompress(&decompress);
  state_->source.next_input_byte = reinterpret_cast<const JOCTET*>(stored.data());
  state_->source.bytes_in_buffer = stored.size();
  if (!attempt(state_->escape, [&] { jpeg_read_header(&decompress, TRUE); })) state_->fail();
  const ImageSize size{decompress.image_width, decompress.image_height};
  if (std::uint64_t{size.width} * size.height > state_->most_pixels) {
    jpeg_abort_decompress(&decompress);
    throw Error(ErrorCode::kResourceExhausted, fmt::format("the JPEG image has {} x {} pixels; at most {} are read",
                                                           size.width, size.height, state_->most_pixels));
  }
  return size;
}

Pixels JpegDecoder::decode(const PixelRegion& region, unsigned divisor, ScratchBuffer& buffer) {
  jpeg_decompress_struct& decompress = state_->decompress;
  const bool cmyk = decompress.jpeg_color_space == JCS_CMYK || decompress.jpeg_color_space == JCS_YCCK;
  decompress.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  decompress.scale_num = 1;
  decompress.scale_denom = divisor;
  decompress.dct_method = JDCT_ISLOW;
  const MemoryReservation coefficients(buffer.budget(), state_->coefficient_bytes());
  // The margin keeps smooth chroma at the region's sides as it is within the whole image.
  JDIMENSION left = region.left - std::min(region.left, kMargin);
  JDIMENSION width = 0;
  if (!attempt(state_->escape, [&] {
        jpeg_start_decompress(&decompress);
        width = std::min(decompress.output_width, region.left + region.width + kMargin) - left;
        jpeg_crop_scanline(&decompress, &left, &width);
      })) {
    state_->fail();
  }
  GYRE_CHECK(region.left + region.width <= left + width);
  GYRE_CHECK(region.top + region.height <= decompress.output_height);
  const std::size_t row_bytes = std::size_t{width} * kPixelBytes;
  const std::size_t image_bytes = row_bytes * region.height + kReadableBehind;
  const std::span<std::byte> memory = buffer.take(image_bytes + (cmyk ? std::size_t{width} * kCmykBytes : 0));
  auto* const pixels = reinterpret_cast<std::uint8_t*>(memory.data());
  std::uint8_t* const inks = pixels + image_bytes;
  const bool complement = decompress.saw_Adobe_marker != 0;
  if (!attempt(state_->escape, [&] {
        if (region.top > 0) jpeg_skip_scanlines(&decompress, region.top);
        for (std::uint32_t y = 0; y < region.height;) {
          JSAMPROW row = cmyk ? inks : pixels + y * row_bytes;
          if (jpeg_read_scanlines(&decompress, &row, 1) == 0) continue;
          if (cmyk) cmyk_to_rgb(inks, width, complement, pixels + y * row_bytes);
          ++y;
        }
      })) {
    state_->fail();
  }
  jpeg_abort_decompress(&decompress);
  return {pixels + std::size_t{region.left - left} * kPixelBytes, row_bytes, region.width, region.height};
}

Bytes encode_jpeg(const Pixels& pixels, int quality) {
  Escape escape;
  jpeg_compress_struct compress{};
  compress.err = install(escape);
  unsigned char* encoded = nullptr;
  unsigned long size = 0;
  const bool done = attempt(escape, [&] {
    jpeg_create_compress(&compress);
    jpeg_mem_dest(&compress, &encoded, &size);
    compress.image_width = pixels.width;
    compress.image_height = pixels.height;
    compress.input_components = kPixelBytes;
    compress.in_color_space = JCS_RGB;
    jpeg_set_defaults(&compress);
    jpeg_set_quality(&compress, quality, TRUE);
    jpeg_start_compress(&compress, TRUE);
    for (std::uint32_t y = 0; y < pixels.height; ++y) {
      auto* row = const_cast<JSAMPROW>(pixels.row(y));  // libjpeg does not write to it.
      jpeg_write_scanlines(&compress, &row, 1);
    }
    jpeg_finish_compress(&compress);
  });
  jpeg_destroy_compress(&compress);
  // Where it gave up `encoded` may be what libjpeg has freed.
  if (!done) throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot encode a JPEG: {}", escape.message.data()));
  const std::unique_ptr<unsigned char, void (*)(void*)> owner(encoded, std::free);
  const auto bytes = std::as_bytes(std::span(encoded, size));
  return {bytes.begin(), bytes.end()};
}

}  // namespace gyre::data
