#include "gyre/data/formats/inflate_stream.h"

#include <fmt/format.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <limits>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::data {
namespace {

constexpr std::int32_t kBitsPerByte = 8;
constexpr std::size_t kReadBytes = std::size_t{256} << 10;

std::uint8_t* as_isal(const std::byte* bytes) {
  return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(bytes));  // Its interface; it only reads.
}

}  // namespace

struct InflateStream::State : inflate_state {};

InflateStream::InflateStream(const ReadableFile& file, Compression compression)
    : file_(file), compression_(compression), state_(std::make_unique<State>()), stored_(kReadBytes) {
  GYRE_CHECK(compression != Compression::kNone);
  isal_inflate_init(state_.get());
  state_->avail_in = 0;
  begin_member();
}

InflateStream::~InflateStream() = default;

void InflateStream::begin_member() {
  const std::uint32_t left = state_->avail_in;
  std::uint8_t* const next = state_->next_in;
  isal_inflate_reset(state_.get());
  state_->avail_in = left;
  state_->next_in = next;
  state_->crc_flag = compression_ == Compression::kGzip ? ISAL_GZIP : ISAL_ZLIB;
  member_offset_ = read_bytes_ - left;
  ++member_;
}

bool InflateStream::refill() {
  if (state_->avail_in > 0) return true;
  const std::uint64_t left = file_.size_bytes() - read_bytes_;
  if (left == 0) return false;
  const auto piece = std::span(stored_).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, stored_.size())));
  file_.read_at(read_bytes_, piece);
  read_bytes_ += piece.size();
  state_->next_in = as_isal(piece.data());
  state_->avail_in = static_cast<std::uint32_t>(piece.size());
  return true;
}

std::size_t InflateStream::read(std::span<std::byte> into) {
  std::size_t made = 0;
  while (!ended_ && made < into.size()) {
    refill();
    const auto room = std::min<std::size_t>(into.size() - made, std::numeric_limits<std::uint32_t>::max());
    state_->next_out = as_isal(into.data() + made);
    state_->avail_out = static_cast<std::uint32_t>(room);
    const std::uint32_t before = state_->avail_in;
    const int result = isal_inflate(state_.get());
    const std::size_t written = room - state_->avail_out;
    made += written;
    // ISAL_END_INPUT: in a header or trailer, which goes on in what is read next.
    if (result != ISAL_DECOMP_OK && result != ISAL_END_INPUT) throw_corrupt();
    if (state_->block_state == ISAL_BLOCK_FINISH) {
      end_member();
    } else if (written == 0 && state_->avail_in == before) {
      throw_corrupt();  // The file has ended.
    }
  }
  return made;
}

void InflateStream::end_member() {
  // Behind zlib's trailer, which is shorter than gzip's, ISA-L may have taken some bytes already.
  const std::int32_t taken = state_->read_in_length / kBitsPerByte;
  const bool more_taken = taken > 0 && state_->read_in != 0;
  const std::uint64_t offset = read_bytes_ - state_->avail_in - static_cast<std::uint64_t>(taken);
  const std::uint64_t zeros = skip_zeros();
  if (state_->avail_in == 0 && !more_taken) {
    ended_ = true;
  } else if (compression_ == Compression::kZlib) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {} bytes follow the end of the zlib data at byte {}",
                                                     file_.name(), file_.size_bytes() - offset, offset));
  } else {
    begin_member();
    member_offset_ -= zeros;
    if (zeros > 0) throw_corrupt();  // Padding is the last thing in a file.
  }
}

std::uint64_t InflateStream::skip_zeros() {
  std::uint64_t skipped = 0;
  while (refill()) {
    const auto here = std::span(state_->next_in, state_->avail_in);
    const auto zeros = std::ranges::find_if(here, [](std::uint8_t byte) { return byte != 0; }) - here.begin();
    state_->next_in += zeros;
    state_->avail_in -= static_cast<std::uint32_t>(zeros);
    skipped += static_cast<std::uint64_t>(zeros);
    if (state_->avail_in > 0) break;
  }
  return skipped;
}

void InflateStream::throw_corrupt() const {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: the compressed data are damaged or end too early (in the {} member that begins at byte "
                          "{}, number {})",
                          file_.name(), compression_ == Compression::kGzip ? "gzip" : "zlib", member_offset_, member_));
}

}  // namespace gyre::data
