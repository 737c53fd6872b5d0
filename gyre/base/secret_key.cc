#include "gyre/base/secret_key.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <new>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSlots = kPageBytes / SecretKey::kBytes;
constexpr std::size_t kSlotsPerWord = 64;

/// A page of its own, because the kernel leaves out whole pages of a core dump. Without a lock, so that a fork that
/// copies or destroys a key never waits for a thread that exists only in its parent.
struct alignas(kPageBytes) Page {
  Page* next = nullptr;
  /// A bit for each slot; slots 0 and 1 hold these members.
  std::array<std::atomic<std::uint64_t>, kSlots / kSlotsPerWord> used{std::uint64_t{3}, std::uint64_t{0}};

  std::byte* slot(std::size_t number) { return reinterpret_cast<std::byte*>(this) + number * SecretKey::kBytes; }

  /// Null when all are used.
  std::byte* take() {
    for (std::size_t word = 0; word < used.size(); ++word) {
      std::uint64_t bits = used[word].load(std::memory_order_relaxed);
      while (~bits != 0) {
        const auto free = static_cast<std::size_t>(std::countr_one(bits));
        if (used[word].compare_exchange_weak(bits, bits | (std::uint64_t{1} << free), std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
          return slot(word * kSlotsPerWord + free);
        }
      }
    }
    return nullptr;
  }

  void give_back(const std::byte* bytes) {
    const auto number = static_cast<std::size_t>(bytes - slot(0)) / SecretKey::kBytes;
    used[number / kSlotsPerWord].fetch_and(~(std::uint64_t{1} << (number % kSlotsPerWord)), std::memory_order_release);
  }
};
static_assert(offsetof(Page, used) + sizeof(Page::used) <= 2 * SecretKey::kBytes);
static_assert(sizeof(Page) == kPageBytes);

/// All pages of the process; they stay until it ends.
constinit std::atomic<Page*> pages{nullptr};

Page* add_page() {
  void* const memory = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error("memory for a key", errno);
  ::madvise(memory, kPageBytes, MADV_DONTDUMP);  // Every Linux since 3.4 has it; without it the key is still wiped.
  Page* const page = new (memory) Page;
  page->next = pages.load(std::memory_order_relaxed);
  while (!pages.compare_exchange_weak(page->next, page, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return page;
}

std::byte* take_slot() {
  for (Page* page = pages.load(std::memory_order_acquire); page != nullptr; page = page->next) {
    if (std::byte* const slot = page->take()) return slot;
  }
  for (;;) {
    if (std::byte* const slot = add_page()->take()) return slot;
  }
}

/// -1: not one.
int value_of_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

SecretKey::SecretKey() : bytes_(take_slot()) {}  // A slot is zero when nobody uses it.

SecretKey::SecretKey(std::span<const std::byte, kBytes> bytes) : SecretKey() {
  std::memcpy(bytes_, bytes.data(), kBytes);
}

SecretKey::SecretKey(const SecretKey& other) : SecretKey() { std::memcpy(bytes_, other.bytes_, kBytes); }

SecretKey& SecretKey::operator=(const SecretKey& other) {
  std::memmove(bytes_, other.bytes_, kBytes);
  return *this;
}

SecretKey::~SecretKey() {
  ::explicit_bzero(bytes_, kBytes);
  const auto page = reinterpret_cast<std::uintptr_t>(bytes_) & ~(kPageBytes - 1);
  reinterpret_cast<Page*>(page)->give_back(bytes_);
}

void SecretKey::fill(std::byte value) { std::memset(bytes_, std::to_integer<int>(value), kBytes); }

bool operator==(const SecretKey& a, const SecretKey& b) { return equal_in_constant_time(a, b); }

SecretKey derive_key(std::span<const std::byte> secret, std::string_view purpose) {
  Sha256 digest = hmac_sha256(secret, as_bytes(purpose));
  const WipedAtEnd wiped(digest);
  return SecretKey(digest);
}

Bytes read_secret(int fd, std::size_t limit_bytes, std::string_view what) {
  Bytes result(limit_bytes + 1);
  std::size_t size = 0;
  while (size < result.size()) {
    const ssize_t count = ::read(fd, result.data() + size, result.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(what, errno);
    if (count == 0) {
      result.resize(size);
      return result;
    }
    size += static_cast<std::size_t>(count);
  }
  const WipedAtEnd wiped(result);
  throw Error(ErrorCode::kResourceExhausted, fmt::format("{}: larger than {} bytes", what, limit_bytes));
}

std::string hex_of(const SecretKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  digits.reserve(2 * SecretKey::kBytes);  // Growing would leave copies behind.
  for (const std::byte byte : key) {
    digits += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    digits += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return digits;
}

std::optional<SecretKey> key_from_hex(std::string_view digits) {
  if (digits.size() != 2 * SecretKey::kBytes) return std::nullopt;
  SecretKey key;
  for (std::size_t i = 0; i < SecretKey::kBytes; ++i) {
    const int high = value_of_digit(digits[2 * i]);
    const int low = value_of_digit(digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key[i] = static_cast<std::byte>(high * 16 + low);
  }
  return key;
}

}  // namespace gyre
