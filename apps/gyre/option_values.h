#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gyre::app {

/// Where host 0 of a job is to be found.
struct Endpoint {
  std::string host;         ///< A name or an address; of IPv6 without brackets.
  std::optional<int> port;  ///< Nothing where none was named.
};

/// "node1", "node1:29500", "10.0.0.1:29500", "[fe80::1]:29500". UsageError, in which `option` is the option's name.
Endpoint parse_host_and_port(const std::string& text, const std::string& option, int lowest_port);

/// The host of an option that takes no port: as in parse_host_and_port(), brackets may be left out.
std::string parse_host(const std::string& text, const std::string& option);

/// "host:port", with brackets where the host needs them.
std::string place_of(const std::string& host, int port);

/// What torchrun's --redirects and --tee name, by local rank: 0 nothing, 1 stdout, 2 stderr, 3 both. "3" is for all
/// ranks, "0:1,1:2" for some. UsageError.
std::vector<int> parse_streams(const std::string& text, const std::string& option, int ranks);

/// torchrun's --local-ranks-filter, "0,2": whether each of the `ranks` is in it. UsageError.
std::vector<bool> parse_ranks(const std::string& text, const std::string& option, int ranks);

/// In the words of the ranks: Horovod's are written large, and its FATAL is our error. UsageError.
std::string parse_log_level(const std::string& text, const std::string& option);

/// torchrun's --signals-to-handle: UsageError where it names one that is not handed to the ranks.
void check_signals(const std::string& text, const std::string& option);

/// Why an option of torchrun or horovodrun cannot be had here, and what to do in its place; nothing for other words.
std::optional<std::string> reason_for_refusal(const std::string& option);

}  // namespace gyre::app
