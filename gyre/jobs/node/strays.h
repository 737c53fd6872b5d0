#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node {

// What a service whose records were restored from a backup asks of the nodes of this machine: what they have in hand,
// and what runs outside of their folders.

/// The order that the node has in hand, whether or not its node program runs. Nothing where it has none, or where that
/// cannot be read.
std::optional<orders::WorkOrder> order_in_hand(const std::filesystem::path& node_root);

/// How an attempt ended on a node, which has not been told to forget it.
struct KeptRecord {
  orders::WorkOrder order;
  orders::NodeReport report;
};
/// Those that can be read.
std::vector<KeptRecord> kept_records(const std::filesystem::path& node_root);
/// Whether the node keeps the record of how the attempt ended.
bool has_record(const std::filesystem::path& node_root, const std::string& attempt);

struct StraySearch {
  std::filesystem::path nodes;  ///< The folder of the service's own nodes.
  /// Whether an attempt of that name must not run outside of them.
  std::function<bool(const std::string& attempt)> is_ours;
  /// Whether they have it in hand, so that its processes are theirs.
  std::function<bool(const std::string& attempt)> is_in_hand;
};

/// Ends such attempts where they run in folders of nodes of services that are gone, or in none any more: node programs,
/// `gyre launch`, and every process that carries the attempt's mark. Returns a sentence that says what is left; an
/// empty one once a look has found nothing. What belongs to a service that is alive is left alone, and said. To be
/// called again until nothing is left; waits for a second or two at most. Blocks.
std::string end_strays(const StraySearch& search);

}  // namespace gyre::jobs::node
