#include "gyre/params/internal/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/params/internal/requests.h"

namespace gyre::params::internal {
namespace {

enum Part : std::uint8_t { kNone = 0, kContributor = 1, kLate = 2, kAsking = 3, kAdmitted = 4, kRefused = 5 };

/// What a server tells server 0: a worker, and whether it only asks.
using Word = std::array<std::byte, 9>;

Word encode_word(int worker, bool asks) {
  ByteWriter writer;
  writer.u64(static_cast<std::uint64_t>(worker));
  writer.u8(asks ? 1 : 0);
  Word word{};
  std::ranges::copy(writer.result(), word.begin());
  return word;
}

}  // namespace

std::size_t verdict_bytes(int workers) { return sizeof(std::uint64_t) + static_cast<std::size_t>(workers); }

Bytes encode(const Quorum::Verdict& verdict, int workers) {
  std::vector<std::uint8_t> parts(static_cast<std::size_t>(workers), kNone);
  for (const int worker : verdict.contributors) parts.at(static_cast<std::size_t>(worker)) = kContributor;
  for (const int worker : verdict.late) parts.at(static_cast<std::size_t>(worker)) = kLate;
  for (const int worker : verdict.asking) parts.at(static_cast<std::size_t>(worker)) = kAsking;
  for (const int worker : verdict.admitted) parts.at(static_cast<std::size_t>(worker)) = kAdmitted;
  for (const int worker : verdict.refused) parts.at(static_cast<std::size_t>(worker)) = kRefused;
  ByteWriter writer;
  writer.u64(verdict.step);
  for (const std::uint8_t part : parts) writer.u8(part);
  return writer.take();
}

Quorum::Verdict decode_verdict(std::span<const std::byte> bytes, int workers) {
  ByteReader reader(bytes, "a verdict of a parameter server");
  Quorum::Verdict verdict{.step = reader.u64(), .contributors = {}, .late = {}, .asking = {}};
  for (int worker = 0; worker < workers; ++worker) {
    const std::uint8_t part = reader.u8();
    if (part > kRefused)
      throw Error(ErrorCode::kProtocol, fmt::format("a verdict has part {} for worker {}", part, worker));
    if (part == kContributor) verdict.contributors.push_back(worker);
    if (part == kLate) verdict.late.push_back(worker);
    if (part == kAsking) verdict.asking.push_back(worker);
    if (part == kAdmitted) verdict.admitted.push_back(worker);
    if (part == kRefused) verdict.refused.push_back(worker);
  }
  if (reader.remaining() != 0) throw Error(ErrorCode::kProtocol, "a verdict is about too many workers");
  return verdict;
}

Verdicts::Verdicts(group::PointToPoint& messages, const Layout& layout, int server, int backup, CarryOut carry_out,
                   Fail fail)
    : messages_(messages),
      layout_(layout),
      server_(server),
      carry_out_(std::move(carry_out)),
      fail_(std::move(fail)),
      quorum_(layout.workers, layout.servers, backup) {
  start([this] { decides() ? lead() : follow(); });
  for (int other = 1; decides() && other < layout.servers; ++other) start([this, other] { hear(other); });
}

Verdicts::~Verdicts() {
  for (std::thread& thread : threads_) thread.join();
}

void Verdicts::start(std::function<void()> work) {
  threads_.push_back(start_thread("a parameter server's verdicts", [this, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      fail_(as_error(error));
    }
  }));
}

void Verdicts::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Verdicts::queue(Quorum::Verdicts verdicts) {
  for (Quorum::Verdict& verdict : verdicts) queue_.push(std::move(verdict));
  changed_.notify_all();
}

void Verdicts::ready(int worker, bool asks) {
  if (decides()) {
    const MutexLock lock(mutex_);
    return queue(quorum_.ready(worker, asks));
  }
  const Word word = encode_word(worker, asks);
  messages_.send(layout_.rank_of_server(0), kReadyTag, kBytesType, word).wait();
}

void Verdicts::announce(int worker) {
  const MutexLock lock(mutex_);
  queue(quorum_.announce(worker));
}

void Verdicts::pause(int worker) {
  const MutexLock lock(mutex_);
  queue(quorum_.pause(worker));
}

void Verdicts::resume(int worker) {
  const MutexLock lock(mutex_);
  queue(quorum_.resume(worker));
}

void Verdicts::leave(int worker) {
  if (!decides()) return;
  const MutexLock lock(mutex_);
  queue(quorum_.leave(worker));
}

void Verdicts::lose(int worker) {
  if (!decides()) return;
  const MutexLock lock(mutex_);
  queue(quorum_.lose(worker));
}

/// Nothing when all workers are gone.
std::optional<Quorum::Verdict> Verdicts::next() {
  const MutexLock lock(mutex_);
  while (queue_.empty() && quorum_.active_workers() > 0 && !stopped_) changed_.wait(mutex_);
  if (queue_.empty()) return std::nullopt;
  Quorum::Verdict verdict = std::move(queue_.front());
  queue_.pop();
  return verdict;
}

/// Server 0. A verdict about nobody tells the others that it was the last one.
void Verdicts::lead() {
  for (bool last = false; !last;) {
    const std::optional<Quorum::Verdict> verdict = next();
    last = !verdict;
    const Bytes bytes = encode(verdict.value_or(Quorum::Verdict{}), layout_.workers);
    std::vector<group::MessageHandle> sent;
    for (int other = 1; (last || verdict->gives_values()) && other < layout_.servers; ++other) {
      sent.push_back(messages_.send(layout_.rank_of_server(other), kVerdictTag, kBytesType, bytes));
    }
    if (verdict) carry_out_(*verdict);
    for (const group::MessageHandle& handle : sent) handle.wait();
  }
}

void Verdicts::follow() {
  Bytes bytes(verdict_bytes(layout_.workers));
  for (;;) {
    messages_.receive(layout_.rank_of_server(0), kVerdictTag, kBytesType, bytes).wait();
    const Quorum::Verdict verdict = decode_verdict(bytes, layout_.workers);
    if (!verdict.gives_values()) break;
    carry_out_(verdict);
  }
  const Word end = encode_word(layout_.workers, false);
  messages_.send(layout_.rank_of_server(0), kReadyTag, kBytesType, end).wait();
}

/// Server 0: what has arrived at another one, until that says that it has heard the last verdict.
void Verdicts::hear(int server) {
  for (;;) {
    Word word{};
    messages_.receive(layout_.rank_of_server(server), kReadyTag, kBytesType, word).wait();
    ByteReader reader(word, "a word of a parameter server");
    const std::uint64_t worker = reader.u64();
    if (worker == static_cast<std::uint64_t>(layout_.workers)) return;
    if (worker > static_cast<std::uint64_t>(layout_.workers)) {
      throw Error(ErrorCode::kProtocol,
                  fmt::format("a parameter server told of worker {} of {}", worker, layout_.workers));
    }
    ready(static_cast<int>(worker), reader.u8() != 0);
  }
}

}  // namespace gyre::params::internal
