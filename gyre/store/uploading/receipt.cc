#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gyre/base/bytes.h"
#include "gyre/store/staging/receipt.h"
#include "gyre/store/uploading/upload.h"

namespace gyre::store {

std::string UploadReceipt::json() const {
  nlohmann::ordered_json failures = nlohmann::ordered_json::array();
  for (const auto& [file, reason] : failed) failures.push_back({{"file", file}, {"reason", reason}});
  const nlohmann::ordered_json receipt = {{"complete", complete()},
                                          {"sources", sources},
                                          {"target", target},
                                          {"files", files},
                                          {"files_sent", files_sent},
                                          {"files_present", files_present},
                                          {"files_kept", files_kept},
                                          {"read_bytes", read_bytes},
                                          {"stored_bytes", stored_bytes},
                                          {"sent_bytes", sent_bytes},
                                          {"reused_bytes", reused_bytes},
                                          {"seconds", seconds},
                                          {"shard", json_of(part)},
                                          {"failed", failures}};
  // Names are those of files, in whatever encoding.
  return receipt.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string UploadReceipt::text() const {
  std::string said = fmt::format("{} of {} file{} in {}: {} sent, {} already there", files_sent + files_present, files,
                                 files == 1 ? "" : "s", target, files_sent, files_present);
  if (files_kept > 0) said += fmt::format("; {} that differ were left as they are", files_kept);
  said += text_of(part);
  const double rate = static_cast<double>(sent_bytes) / std::max(seconds, 1e-3);
  said += fmt::format("\n{} stored there, {} sent, {:.1f} s ({}/s)\n", format_bytes(stored_bytes),
                      format_bytes(sent_bytes), seconds, format_bytes(static_cast<std::uint64_t>(rate)));
  if (reused_bytes > 0) said += fmt::format("{} had been sent by an earlier upload\n", format_bytes(reused_bytes));
  if (!failed.empty()) said += fmt::format("{} failed\n", failed.size());
  return said;
}

}  // namespace gyre::store
