#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/store/staging/leftovers.h"
#include "gyre/store/staging/manifest.h"

namespace gyre::store {

/// The part as it stands in a receipt: as JSON ("null" for the whole), and for people (nothing for the whole).
nlohmann::ordered_json json_of(const std::optional<PartOf>& part);
std::string text_of(const std::optional<PartOf>& part);

/// The proof of what was staged.
struct Receipt {
  std::vector<std::string> sources;
  std::string folder;
  std::string manifest;          ///< The manifest's digest.
  std::optional<PartOf> part{};  ///< Of which it was a part, if it was.

  std::uint64_t files = 0;          ///< In the manifest: each of them is counted in one of the next four.
  std::uint64_t files_fetched = 0;  ///< Now.
  std::uint64_t files_present = 0;  ///< Of an earlier staging, and unchanged.
  std::uint64_t files_kept = 0;     ///< Were there, of elsewhere or of an older version: left as they are, not checked.
  std::uint64_t stored_bytes = 0;   ///< Of the manifest, as the sources store it.
  std::uint64_t written_bytes = 0;  ///< Of the files that were fetched or present.
  std::uint64_t read_bytes = 0;     ///< From the sources, now, those included that were read in vain.
  std::uint64_t reused_bytes = 0;   ///< Of objects that an earlier staging had begun.
  std::uint64_t checked_md5 = 0;    ///< Files whose MD5 the source had, and which agreed.
  std::uint64_t checked_gzip = 0;   ///< Files that were decompressed, each part with its checksum.
  std::uint64_t setbacks = 0;       ///< Requests that failed and were tried again.
  double seconds = 0;

  std::vector<std::pair<std::string, std::string>> failed{};  ///< Files, and why.

  /// What an older Gyre had recorded in the folder.
  struct Older {
    std::uint64_t files = 0;        ///< All.
    std::uint64_t of_this_set = 0;  ///< Were compared with their checksums,
    std::uint64_t sound = 0;        ///< and these fit; the others were read again.
  };
  Older older{};

  FoundLeftovers leftovers{};  ///< Files in the folder that the manifest does not have.

  bool complete() const { return failed.empty(); }
  std::string json() const;
  /// For people, several lines.
  std::string text() const;
  /// What a person has to know of what was there: a line for what an older Gyre has staged, one for what was removed,
  /// and one for what is there in addition.
  std::vector<std::string> notes() const;
};

}  // namespace gyre::store
