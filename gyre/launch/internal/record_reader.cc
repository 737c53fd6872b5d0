#include "gyre/launch/internal/record_reader.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace gyre::launch {

namespace {

using Json = nlohmann::json;

/// Kept for one reader at a time, and one record more; the rest waits in the log.
constexpr std::size_t kMostOutputBytes = std::size_t{256} << 10;
/// What is only reached by answers that nobody reads.
constexpr std::size_t kTooManyOutputBytes = std::size_t{2} << 20;

}  // namespace

void RecordReader::receive(const Answer& answer) {
  std::array<char, kLongestRequestBytes> bytes;
  const ssize_t count = ::recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return socket_.reset();
  input_.append(bytes.data(), static_cast<std::size_t>(count));
  for (std::size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
    const std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    handle(line, answer);
    // A reader that asks and does not read the answers.
    if (output_.size() > kTooManyOutputBytes) return socket_.reset();
  }
  if (input_.size() > kLongestRequestBytes) socket_.reset();
}

void RecordReader::handle(const std::string& line, const Answer& answer) {
  const Json request = Json::parse(line, nullptr, false);
  if (!request.is_object() || !request.contains("request") || !request["request"].is_string()) {
    return say({{"error", "a request is a line like {\"request\": \"follow\", \"after\": 0}"}});
  }
  if (request["request"] != "follow") {
    if (const auto reply = answer(request)) say(*reply);
    return;
  }
  const auto after = request.find("after");
  constexpr std::uint64_t kHighest = std::uint64_t{1} << 62U;
  if (after != request.end() && (!after->is_number_unsigned() || *after > kHighest)) {
    return say({{"error", "after must be a record's number, or 0"}});
  }
  next_ = after == request.end() ? 1 : after->get<std::uint64_t>() + 1;
}

void RecordReader::say(const Json& line) { output_ += line.dump() + "\n"; }

void RecordReader::refill(const RecordLog& log) {
  if (!next_) return;
  if (*next_ < log.first()) {
    say({{"dropped", log.first() - *next_}, {"after", *next_ - 1}});
    next_ = log.first();
  }
  while (*next_ <= log.last() && output_.size() < kMostOutputBytes) {
    output_ += log.line(*next_);
    ++*next_;
  }
}

void RecordReader::send(const RecordLog& log) {
  refill(log);
  while (!output_.empty()) {
    const ssize_t count = ::send(fd(), output_.data(), output_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return socket_.reset();
    output_.erase(0, static_cast<std::size_t>(count));
    refill(log);
  }
}

}  // namespace gyre::launch
