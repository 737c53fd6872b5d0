#include "gyre/store/staging/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"

namespace gyre::store {

namespace {

std::string count(std::uint64_t number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMostShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostShown); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text + (names.size() > kMostShown ? ", …" : "");
}

}  // namespace

nlohmann::ordered_json json_of(const std::optional<PartOf>& part) {
  if (!part) return nullptr;
  return {{"node", part->node}, {"nodes", part->nodes}, {"by", part->rule}};
}

std::string text_of(const std::optional<PartOf>& part) {
  return part ? fmt::format("\nthe part of node {} of {}, divided by {}", part->node, part->nodes, part->rule) : "";
}

std::string Receipt::json() const {
  nlohmann::ordered_json failures = nlohmann::ordered_json::array();
  for (const auto& [file, reason] : failed) failures.push_back({{"file", file}, {"reason", reason}});
  const nlohmann::ordered_json receipt = {{"complete", complete()},
                                          {"sources", sources},
                                          {"folder", folder},
                                          {"manifest_sha256", manifest},
                                          {"shard", json_of(part)},
                                          {"whole_manifest_sha256", part ? part->whole_manifest : manifest},
                                          {"files", files},
                                          {"files_fetched", files_fetched},
                                          {"files_present", files_present},
                                          {"files_kept", files_kept},
                                          {"stored_bytes", stored_bytes},
                                          {"written_bytes", written_bytes},
                                          {"read_bytes", read_bytes},
                                          {"reused_bytes", reused_bytes},
                                          {"checked_md5", checked_md5},
                                          {"checked_gzip", checked_gzip},
                                          {"setbacks", setbacks},
                                          {"seconds", seconds},
                                          {"removed", leftovers.removed},
                                          {"other_files", leftovers.others},
                                          {"failed", failures}};
  // Names are the sources', in whatever encoding.
  return receipt.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<std::string> Receipt::notes() const {
  std::vector<std::string> notes;
  if (older.of_this_set > 0) {
    notes.push_back(
        fmt::format("an older Gyre had staged {} of this set in {}; they were compared with the checksums "
                    "that it had recorded, which {} of them fit{}",
                    count(older.of_this_set, "file"), folder, older.sound,
                    older.sound < older.of_this_set ? "; the others were read again" : ""));
  } else if (older.files > 0 && files_present == 0) {
    notes.push_back(
        fmt::format("an older Gyre had staged {} in {}; what it recorded fits no file of this set, and "
                    "all were read",
                    count(older.files, "file"), folder));
  }
  if (const auto& names = leftovers.removed; !names.empty()) {
    notes.push_back(
        fmt::format("removed from {}: {} that an earlier staging had brought and this set does not have: {}", folder,
                    count(names.size(), "file"), first_of(names)));
  }
  if (const auto& names = leftovers.others; !names.empty()) {
    notes.push_back(fmt::format("{} also holds {}{} not of this set, left there: {}", folder,
                                names.size() < kMostOthers ? "" : "more than ", count(names.size(), "file"),
                                first_of(names)));
  }
  return notes;
}

std::string Receipt::text() const {
  const std::uint64_t sound = files_fetched + files_present;
  std::string said = fmt::format("{} of {} in {}: {} fetched, {} already there", sound, count(files, "file"), folder,
                                 files_fetched, files_present);
  if (files_kept > 0) said += fmt::format(", {} kept as they were and not checked", files_kept);
  if (!failed.empty()) said += fmt::format(", {} failed", failed.size());
  said += text_of(part);
  said +=
      fmt::format("\n{} read from {} of {} stored, {} written, {:.1f} s ({}/s)", format_bytes(read_bytes),
                  count(sources.size(), "source"), format_bytes(stored_bytes), format_bytes(written_bytes), seconds,
                  format_bytes(static_cast<std::uint64_t>(static_cast<double>(read_bytes) / std::max(seconds, 1e-3))));
  said += fmt::format("\nchecked: the length of {}, the MD5 of {}, gzip's checksums of {}", count(sound, "file"),
                      checked_md5, checked_gzip);
  if (setbacks > 0) said += fmt::format("; {} tried again", count(setbacks, "request"));
  return said + "\n";
}

}  // namespace gyre::store
