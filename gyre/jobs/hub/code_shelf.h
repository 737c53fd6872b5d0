#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "gyre/jobs/orders/code_stream.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/net/async/message_connection.h"

namespace gyre::jobs::hub {

/// The service's end of the code that nodes ask for (ADR 131): reads ranges of the archives of attempts that run. It
/// keeps nothing between two requests. Not thread-safe.
class CodeShelf {
 public:
  /// Its nodes may ask.
  void expect(const orders::WorkOrder& order);
  void release(const std::string& attempt) { archives_.erase(attempt); }

  /// kCodeBytes or kCodeRefused. `node`: NodePlace::registered_name().
  net::SharedMessage answer(const std::string& node, const orders::CodeRequest& request) const;

 private:
  struct Archive {
    std::string sha256;
    std::filesystem::path file;
    std::set<std::string> nodes;
  };

  std::map<std::string, Archive> archives_;  ///< By attempt.
};

}  // namespace gyre::jobs::hub
