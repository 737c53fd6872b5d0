#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/launch/hosts.h"

namespace gyre::launch {

namespace {

constexpr std::uint64_t kMostHostFileBytes = std::uint64_t{16} << 20;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@.-";
  return !text.empty() && text.front() != '-' && text.find_first_not_of(kLetters) == std::string_view::npos;
}

Host parse_host(std::string_view word, const std::string& shown) {
  const std::size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? "1" : word.substr(colon + 1);
  const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_name(name) || !number) refuse(fmt::format("{} is not a host with slots, like `node1:4`", shown));
  int slots = 0;  // Stays so where the number has no end.
  std::from_chars(digits.data(), digits.data() + digits.size(), slots);
  if (slots < 1 || slots > kMostRanksPerHost) {
    refuse(fmt::format("{}: a host has 1 to {} slots", shown, kMostRanksPerHost));
  }
  return {.name = std::string(name), .slots = slots};
}

constexpr std::string_view kSpaces = " \t\r\f\v";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t begin = line.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kSpaces, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kSpaces, end);
  }
  return words;
}

/// ASCII and well-formed longer characters: names of hosts are ASCII, but comments are not.
bool is_text(std::string_view bytes) {
  std::size_t follow = 0;
  for (const unsigned char byte : bytes) {
    if (follow > 0) {
      if ((byte & 0xC0) != 0x80) return false;
      --follow;
    } else if (byte >= 0x80) {
      if (byte < 0xC2 || byte > 0xF4) return false;
      follow = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    }
  }
  return follow == 0;
}

}  // namespace

bool Host::is_here() const {
  const std::string own = lower(host_name());
  const std::string wanted = lower(name);
  return wanted == "localhost" || wanted == "127.0.0.1" || wanted == own || wanted == own.substr(0, own.find('.'));
}

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (const std::string& word : split(std::string(text), ',')) {
    if (!word.empty()) hosts.push_back(parse_host(word, fmt::format("-H: '{}'", word)));
  }
  return hosts;
}

std::vector<Host> parse_host_file(std::string_view text) {
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& line : split(std::string(text), '\n')) {
    ++number;
    const auto words = words_of(std::string_view(line).substr(0, line.find('#')));
    if (words.empty()) continue;
    const std::size_t begin = line.find_first_not_of(kSpaces);
    const std::string stripped = line.substr(begin, line.find_last_not_of(kSpaces) + 1 - begin);
    const std::string shown = fmt::format("--hostfile, line {}: '{}'", number, stripped);
    constexpr std::string_view kSlots = "slots=";
    if (words.size() == 1) {
      hosts.push_back(parse_host(words[0], shown));
    } else if (words.size() == 2 && words[1].starts_with(kSlots)) {
      hosts.push_back(parse_host(fmt::format("{}:{}", words[0], words[1].substr(kSlots.size())), shown));
    } else {
      refuse(fmt::format("{} is not a line like `node1 slots=4`", shown));
    }
  }
  if (hosts.empty()) refuse("--hostfile: it names no host");
  return hosts;
}

std::vector<Host> read_host_file(const std::string& path) {
  Bytes bytes;
  try {
    bytes = read_file(path, kMostHostFileBytes);
  } catch (const Error& error) {
    refuse(fmt::format("--hostfile: {}", error.what()));
  }
  if (!is_text(as_text(bytes))) refuse(fmt::format("--hostfile: '{}' is not text", path));
  return parse_host_file(as_text(bytes));
}

std::vector<Host> divide(const std::vector<Host>& hosts, int ranks) {
  if (hosts.empty()) refuse("-H: no host was named");
  std::int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (ranks > slots) {
    refuse(fmt::format(
        "-n {}: the hosts have {} slots in all; give each host as many as ranks are to run there "
        "(-H {}:{}), else it has one",
        ranks, slots, hosts.front().name, (static_cast<std::size_t>(ranks) + hosts.size() - 1) / hosts.size()));
  }
  std::int64_t left = ranks > 0 ? ranks : slots;
  std::vector<Host> used;
  for (const Host& host : hosts) {
    if (left == 0) break;
    used.push_back({.name = host.name, .slots = static_cast<int>(std::min<std::int64_t>(host.slots, left))});
    left -= used.back().slots;
  }
  return used;
}

std::vector<std::string> parse_server_hosts(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string& word : split(std::string(text), ',')) {
    if (word.empty()) continue;
    if (word.find(':') != std::string::npos) {
      refuse(fmt::format("--server-hosts: '{}': these hosts have no slots; give the name alone", word));
    }
    if (!is_name(word)) refuse(fmt::format("--server-hosts: '{}' is not the name of a host", word));
    names.push_back(word);
  }
  if (names.empty()) refuse("--server-hosts: no host was named");
  return names;
}

std::vector<Host> place_servers(std::vector<Host> hosts, const std::vector<std::string>& names, int servers) {
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < hosts.size() && names.empty(); ++place) places.push_back(place);
  for (const std::string& name : names) {
    if (places.size() == static_cast<std::size_t>(servers)) break;  // The others are not needed.
    const auto found = std::ranges::find(hosts, name, &Host::name);
    places.push_back(static_cast<std::size_t>(found - hosts.begin()));
    if (found == hosts.end()) hosts.push_back({.name = name, .slots = 0});
  }
  for (int server = 0; server < servers; ++server) {
    Host& host = hosts[places[static_cast<std::size_t>(server) % places.size()]];
    host.servers.push_back(server);
    if (host.slots + static_cast<int>(host.servers.size()) <= kMostRanksPerHost) continue;
    refuse(fmt::format("--servers {}: host {} would run more than {} ranks", servers, host.name, kMostRanksPerHost));
  }
  return hosts;
}

std::vector<std::vector<int>> rank_numbers(const std::vector<Host>& hosts) {
  std::vector<std::vector<int>> numbers(hosts.size());
  int next = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (int slot = 0; slot < hosts[host].slots; ++slot) numbers[host].push_back(next++);
  }
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const int server : hosts[host].servers) numbers[host].push_back(next + server);
  }
  return numbers;
}

std::vector<std::string> shell_words(std::string_view text, const std::string& what) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool escapes = letter == '\\' && quote != '\'' && i + 1 < text.size() &&
                         (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\');
    if (escapes) {
      word = word.value_or("") + text[++i];
    } else if (quote != 0 && letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
      word = word.value_or("");
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(letter)) != 0) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
    } else {
      word = word.value_or("") + letter;
    }
  }
  if (quote != 0) refuse(fmt::format("{} is `{}`, in which a quote is not closed", what, text));
  if (word) words.push_back(*word);
  return words;
}

}  // namespace gyre::launch
