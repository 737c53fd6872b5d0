// A metrics file may come from a stranger or a dying disk: reading it ends with samples whose names are names, or with
// a gyre::Error. The checksums are put right first, or nothing would get past them.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/metrics/file.h"

namespace {

class Checker : public gyre::metrics::FileVisitor {
 public:
  void sample(const gyre::metrics::Sample& sample) override {
    GYRE_CHECK(gyre::metrics::is_name(sample.name));
    GYRE_CHECK(sample.rank >= 0);
  }
  void note(std::string_view key, std::string_view /*value*/) override { GYRE_CHECK(gyre::metrics::is_name(key)); }
};

void put_checksums_right(gyre::Bytes& bytes) {
  constexpr std::size_t kMagic = 8;
  constexpr std::size_t kHeader = 8;
  std::size_t at = kMagic;
  while (at + kHeader <= bytes.size()) {
    const auto block = std::span(bytes).subspan(at);
    const std::uint32_t size = gyre::ByteReader(block, "fuzz").u32();
    if (size > block.size() - kHeader) return;
    gyre::ByteWriter sum;
    sum.u32(gyre::crc32c(block.subspan(kHeader, size), gyre::crc32c(block.first(4))));
    std::memcpy(block.data() + 4, sum.result().data(), 4);
    at += kHeader + size;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  gyre::Bytes bytes(input.begin(), input.end());
  put_checksums_right(bytes);
  Checker checker;
  try {
    static_cast<void>(gyre::metrics::read_metrics(bytes, "fuzz", checker));
  } catch (const gyre::Error&) {
    return 0;  // The one allowed failure.
  }
  return 0;
}
