#include "gyre/jobs/node/code_fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/thread.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::node {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kShortestPiece = std::uint64_t{16} << 10;
constexpr std::size_t kReadBytes = std::size_t{256} << 10;
constexpr const char* kWhat = "the job's code";

}  // namespace

/// A SHA-256 of what comes piece by piece.
struct CodeFetch::Hash {
  Hash() : state(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {
    if (!state || ::EVP_DigestInit_ex(state.get(), ::EVP_sha256(), nullptr) != 1) {
      throw Error(ErrorCode::kInternal, "cannot compute a SHA-256");
    }
  }
  void add(std::span<const std::byte> bytes) const { ::EVP_DigestUpdate(state.get(), bytes.data(), bytes.size()); }
  std::string digits() const {
    Sha256 digest{};
    ::EVP_DigestFinal_ex(state.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return hex(digest);
  }

  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> state;
};

CodeFetch::CodeFetch(std::string attempt, std::string sha256, fs::path file)
    : attempt_(std::move(attempt)),
      sha256_(std::move(sha256)),
      file_(std::move(file)),
      draft_(file_.string() + ".part") {
  thread_ = start_thread("the job's code", [this] { run(); });
}

CodeFetch::~CodeFetch() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
    work_.notify_all();
  }
  thread_.join();
}

void CodeFetch::connected(std::uint64_t window) {
  limit_.start(window);
  const MutexLock lock(mutex_);
  asked_ = come_;
  answered_ = false;
}

void CodeFetch::take(orders::CodePiece piece) {
  const MutexLock lock(mutex_);
  // Else it comes a second time, or from before a new start.
  if (!ready_ || here_ || failure_ || piece.sha256 != sha256_ || piece.offset != come_) return;
  if (answered_ && total_ != piece.total) {
    failure_.emplace(ErrorCode::kCorruptData, fmt::format("{} became another one while it was sent", kWhat));
    return changed_.notify();
  }
  answered_ = true;
  total_ = piece.total;
  limit_.took(piece.bytes.size());
  come_ += piece.bytes.size();
  asked_ = std::max(asked_, come_);
  if (!piece.bytes.empty()) pieces_.push_back(std::move(piece));
  work_.notify_all();
}

void CodeFetch::fail(const Error& why) {
  const MutexLock lock(mutex_);
  if (here_ || failure_) return;
  failure_.emplace(why);
  changed_.notify();
}

bool CodeFetch::send_one(const Send& send) {
  orders::CodeRequest request{.attempt = attempt_, .sha256 = sha256_};
  {
    const MutexLock lock(mutex_);
    const bool asks = limit_.window() > 0 && ready_ && !here_ && !failure_;
    // The first answer tells how long it is.
    if (!asks || (!answered_ && asked_ > come_) || (answered_ && asked_ >= *total_)) return false;
    const std::uint64_t piece = std::clamp(limit_.bytes() / 4, kShortestPiece, orders::kMostCodePieceBytes);
    if (asked_ > written_ && asked_ - written_ + piece > limit_.bytes()) return false;
    request.offset = asked_;
    request.bytes = answered_ ? std::min(piece, *total_ - asked_) : piece;
    asked_ += request.bytes;
  }
  send(orders::message_type::kCodeWanted, as_bytes(encode(request)));
  return true;
}

bool CodeFetch::is_here() const {
  const MutexLock lock(mutex_);
  return here_;
}

std::optional<Error> CodeFetch::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

std::uint64_t CodeFetch::in_flight() const {
  const MutexLock lock(mutex_);
  return asked_ - written_;
}

void CodeFetch::run() {
  try {
    begin();
    for (;;) {
      std::optional<orders::CodePiece> piece;
      {
        const MutexLock lock(mutex_);
        const auto is_whole = [&]() GYRE_REQUIRES(mutex_) { return answered_ && written_ >= *total_; };
        while (pieces_.empty() && !is_whole() && !over_ && !failure_) work_.wait(mutex_);
        if (over_ || failure_) return;
        if (!pieces_.empty()) piece = std::move(pieces_.front());
        if (piece) pieces_.pop_front();
      }
      if (piece) {
        write(piece->bytes);
      } else {
        finish();
      }
      const MutexLock lock(mutex_);
      changed_.notify();
      if (here_) return;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kResourceExhausted) ::unlink(draft_.c_str());  // For others.
    fail(error);
  }
}

void CodeFetch::begin() {
  hash_ = std::make_unique<Hash>();
  draft_file_ = UniqueFd(::open(draft_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!draft_file_) throw system_error(fmt::format("cannot keep {} in {}", kWhat, draft_.string()), errno);
  std::uint64_t there = 0;
  Bytes bytes(kReadBytes);
  for (;;) {
    const ssize_t count = ::read(draft_file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(fmt::format("cannot read {}", draft_.string()), errno);
    if (count == 0) break;
    hash_->add(std::span(bytes).first(static_cast<std::size_t>(count)));
    there += static_cast<std::uint64_t>(count);
  }
  resumed_ = there > 0;
  const MutexLock lock(mutex_);
  asked_ = come_ = written_ = there;
  ready_ = true;
  changed_.notify();
}

void CodeFetch::write(std::span<const std::byte> bytes) {
  write_all(draft_file_.get(), bytes, fmt::format("{} to {}", kWhat, draft_.string()));
  hash_->add(bytes);
  const MutexLock lock(mutex_);
  written_ += bytes.size();
}

/// What was there was no beginning of it.
void CodeFetch::start_anew() {
  if (::ftruncate(draft_file_.get(), 0) != 0 || ::lseek(draft_file_.get(), 0, SEEK_SET) != 0) {
    throw system_error(fmt::format("cannot write {}", draft_.string()), errno);
  }
  hash_ = std::make_unique<Hash>();
  resumed_ = false;
  pieces_.clear();
  asked_ = come_ = written_ = 0;
}

void CodeFetch::finish() {
  const MutexLock lock(mutex_);
  if (written_ > *total_ || hash_->digits() != sha256_) {
    if (resumed_) return start_anew();
    throw Error(ErrorCode::kCorruptData, fmt::format("{} is not what was uploaded: its SHA-256 is another one", kWhat));
  }
  ::futimens(draft_file_.get(), nullptr);  // When it was wanted last.
  if (::rename(draft_.c_str(), file_.c_str()) != 0) {
    throw system_error(fmt::format("cannot keep {} in {}", kWhat, file_.string()), errno);
  }
  here_ = true;
}

}  // namespace gyre::jobs::node
