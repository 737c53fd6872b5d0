#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace gyre::net {

/// How many connections may be open at once that have not yet proved that they know the key, where `expected` members
/// of the job may connect in the same moment: 256 + 2 * expected, which is 260 for 2 ranks and 20,256 for 10,000. The
/// half of this process's `open_files` bounds it, but never below 256 + expected: members alone always fit.
std::size_t most_strangers(std::size_t expected, std::size_t open_files);

/// The connections that have not yet proved that they know the key, and which of them is closed to make room for a new
/// one. No more than `expected` of them are members of the job. So where one source has more than that, strangers are
/// among them, and the oldest connection of that source is closed; otherwise the oldest of all. It follows that
///  * members never displace members: together they are fewer than the limit;
///  * strangers of one source never displace a member of another one (unless `open_files` lowered the limit): when the
///    limit is reached and members hold at most `expected` of it, that source holds more than `expected`;
///  * any other flood has to open as many connections as the limit, or as its source has, before it displaces a member,
///    which usually has proved its key by then, and otherwise tries again.
/// Not thread-safe.
template <typename Connection>
class Strangers {
 public:
  using Number = std::uint64_t;

  Strangers(std::size_t expected, std::size_t most) : expected_(expected), most_(most) {}

  bool full() const { return connections_.size() >= most_; }
  bool empty() const { return connections_.empty(); }
  std::size_t size() const { return connections_.size(); }

  /// `source`: what the kernel says of where it comes from (an address, an account).
  Number add(const std::string& source, Connection connection) {
    const Number number = next_++;
    connections_.emplace(number, std::pair(source, std::move(connection)));
    std::set<Number>& of_source = sources_[source];
    of_source.insert(number);
    if (of_source.size() > expected_) crowded_.insert(source);
    return number;
  }

  /// False when it has been displaced.
  bool remove(Number number) { return take(number).has_value(); }

  /// Takes out the one that has to make room; there must be one.
  Connection displace() {
    const Number number =
        crowded_.empty() ? connections_.begin()->first : *sources_.find(*crowded_.begin())->second.begin();
    return *take(number);
  }

  template <typename Action>
  void for_each(Action action) const {
    for (const auto& [number, connection] : connections_) action(connection.second);
  }

 private:
  std::optional<Connection> take(Number number) {
    const auto found = connections_.find(number);
    if (found == connections_.end()) return std::nullopt;
    auto [source, connection] = std::move(found->second);
    connections_.erase(found);
    const auto of_source = sources_.find(source);
    of_source->second.erase(number);
    if (of_source->second.size() <= expected_) crowded_.erase(source);
    if (of_source->second.empty()) sources_.erase(of_source);
    return std::move(connection);
  }

  std::size_t expected_;
  std::size_t most_;
  Number next_ = 0;
  std::map<Number, std::pair<std::string, Connection>> connections_;  // Oldest first.
  std::map<std::string, std::set<Number>> sources_;
  std::set<std::string> crowded_;  // The sources with more connections than the job has members.
};

}  // namespace gyre::net
