#include "gyre/data/formats/png.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <new>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

constexpr std::size_t kMessageBytes = 200;
constexpr png_alloc_size_t kMostChunkBytes = png_alloc_size_t{8} << 20;  // Of text, profiles and the like.
constexpr png_uint_32 kMostPngSide = 1'000'000;

}  // namespace

/// One image: libpng's objects can be used for one only.
struct PngDecoder::State {
  explicit State(std::uint64_t most) : most_pixels(most) {}
  ~State() { clear(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void clear() { png_destroy_read_struct(&png, &info, nullptr); }

  /// False where libpng gave up in `work`, which must hold nothing that has a destructor.
  template <typename Work>
  bool attempt(const Work& work) {
    if (setjmp(png_jmpbuf(png)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's only way out.
    work();
    return true;
  }

  [[noreturn]] void fail() {
    clear();
    throw Error(ErrorCode::kCorruptData, fmt::format("the PNG image cannot be decoded: {}", message.data()));
  }

  void start();
  void read_rows(const PixelRegion& region, std::uint8_t* rows, std::size_t row_bytes, std::uint8_t* unused_row);

  static void on_error(png_structp png, png_const_charp text);
  static void on_warning(png_structp /*png*/, png_const_charp /*text*/) {}
  static void read_bytes(png_structp png, png_bytep into, std::size_t count);

  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> left;
  std::array<char, kMessageBytes> message{};
  std::uint64_t most_pixels;
};

void PngDecoder::State::on_error(png_structp png, png_const_charp text) {
  auto& state = *static_cast<State*>(png_get_error_ptr(png));
  std::strncpy(state.message.data(), text, state.message.size() - 1);
  png_longjmp(png, 1);
}

void PngDecoder::State::read_bytes(png_structp png, png_bytep into, std::size_t count) {
  auto& state = *static_cast<State*>(png_get_io_ptr(png));
  if (count > state.left.size()) png_error(png, "the data end too early");
  std::memcpy(into, state.left.data(), count);
  state.left = state.left.subspan(count);
}

void PngDecoder::State::start() {
  clear();
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
  if (png == nullptr) throw std::bad_alloc();
  info = png_create_info_struct(png);
  if (info == nullptr) throw std::bad_alloc();
  png_set_read_fn(png, this, read_bytes);
  png_set_user_limits(png, kMostPngSide, kMostPngSide);
  png_set_chunk_malloc_max(png, kMostChunkBytes);
}

void PngDecoder::State::read_rows(const PixelRegion& region, std::uint8_t* rows, std::size_t row_bytes,
                                  std::uint8_t* unused_row) {
  const png_uint_32 height = png_get_image_height(png, info);
  if (png_get_interlace_type(png, info) != PNG_INTERLACE_NONE) {
    // Each pass adds pixels to rows all over the image, which therefore is kept as a whole.
    const int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; ++pass) {
      for (png_uint_32 y = 0; y < height; ++y) png_read_row(png, rows + y * row_bytes, nullptr);
    }
    return;
  }
  for (std::uint32_t y = 0; y < region.top; ++y) png_read_row(png, unused_row, nullptr);
  for (std::uint32_t y = 0; y < region.height; ++y) png_read_row(png, rows + y * row_bytes, nullptr);
}

PngDecoder::PngDecoder(std::uint64_t most_pixels) : state_(std::make_unique<State>(most_pixels)) {}
PngDecoder::~PngDecoder() = default;
PngDecoder::PngDecoder(PngDecoder&&) noexcept = default;
PngDecoder& PngDecoder::operator=(PngDecoder&&) noexcept = default;

ImageSize PngDecoder::open(std::span<const std::byte> stored) {
  State& state = *state_;
  state.start();
  state.left = stored;
  if (!state.attempt([&] { png_read_info(state.png, state.info); })) state.fail();
  const ImageSize size{png_get_image_width(state.png, state.info), png_get_image_height(state.png, state.info)};
  if (std::uint64_t{size.width} * size.height > state.most_pixels) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("the PNG image has {} x {} pixels; at most {} are read",
                                                           size.width, size.height, state.most_pixels));
  }
  return size;
}

Pixels PngDecoder::decode(const PixelRegion& region, ScratchBuffer& buffer) {
  State& state = *state_;
  const int color = png_get_color_type(state.png, state.info);
  const int depth = png_get_bit_depth(state.png, state.info);
  if (!state.attempt([&] {
        if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(state.png);
        if ((color & PNG_COLOR_MASK_COLOR) == 0 && depth < 8) png_set_expand_gray_1_2_4_to_8(state.png);
        if (depth == 16) png_set_scale_16(state.png);
        if ((color & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(state.png);
        png_set_strip_alpha(state.png);
        if (png_get_interlace_type(state.png, state.info) != PNG_INTERLACE_NONE) png_set_interlace_handling(state.png);
        png_read_update_info(state.png, state.info);
      })) {
    state.fail();
  }
  const std::size_t width = png_get_image_width(state.png, state.info);
  const std::size_t height = png_get_image_height(state.png, state.info);
  GYRE_CHECK(region.left + region.width <= width);
  GYRE_CHECK(region.top + region.height <= height);
  const std::size_t row_bytes = png_get_rowbytes(state.png, state.info);
  GYRE_CHECK(row_bytes == width * kPixelBytes);
  const bool whole = png_get_interlace_type(state.png, state.info) != PNG_INTERLACE_NONE;
  const std::size_t kept_rows = whole ? height : region.height;
  const std::span<std::byte> memory = buffer.take((kept_rows + 1) * row_bytes + kReadableBehind);
  auto* const rows = reinterpret_cast<std::uint8_t*>(memory.data());
  if (whole) std::memset(rows, 0, kept_rows * row_bytes);  // Passes combine with what is there.
  if (!state.attempt([&] { state.read_rows(region, rows, row_bytes, rows + kept_rows * row_bytes); })) state.fail();
  const std::size_t first_row = whole ? region.top : 0;
  return {rows + first_row * row_bytes + std::size_t{region.left} * kPixelBytes, row_bytes, region.width,
          region.height};
}

}  // namespace gyre::data
