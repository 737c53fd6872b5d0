#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/catalog/attempts.h"
#include "gyre/jobs/catalog/clusters.h"
#include "gyre/jobs/catalog/events.h"
#include "gyre/jobs/catalog/jobs.h"
#include "gyre/jobs/catalog/nodes.h"
#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/catalog/users.h"
#include "gyre/jobs/catalog/workspaces.h"

namespace gyre::jobs::catalog {

class Store;

struct CatalogOptions {
  std::function<TimeUs()> now;  ///< Unset: the wall clock.
  /// Gets a sentence for each damaged row that opening the catalog has repaired.
  std::function<void(const std::string&)> repaired{};
};

/// What was written down before it was done, and not yet confirmed. A service that starts asks drivers and node
/// programs about it.
struct Unconfirmed {
  std::vector<Attempt> attempts;  ///< Planned or ending.
  std::vector<Node> nodes;        ///< Allocating or leaving.
  std::vector<Job> jobs;          ///< Being deleted.
  std::vector<Cluster> clusters;  ///< Being deleted.
};

/// Where an archive of code lies.
using CodePlace = std::function<std::filesystem::path(const CodeKey&)>;

/// What a backup has of them.
struct BackedUpCode {
  int archives = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> jobs_without;  ///< Names of jobs that have not ended and whose code was gone.
};

/// The memory of the job service: one SQLite file with all workspaces, clusters, nodes, experiments, jobs, attempts,
/// users and events.
///
/// Every function that changes something does it, with its events, completely or not at all, and has it on disk when it
/// returns; a failure leaves everything as it was, and the catalog usable. Failures are gyre::Error: kNotFound and
/// kInvalidArgument (an illegal transition, a name that is in use) where the call is wrong, kResourceExhausted on a
/// full disk, kIo where the file cannot be written, kCorruptData where it is damaged.
///
/// An intent is written before the act: an attempt is planned before it is started, and ending before it is ended. The
/// act is idempotent by the attempt's id, and so is its confirmation, so that after a crash at any moment unconfirmed()
/// says what has to be asked about or done again.
///
/// Not thread-safe.
class Catalog {
 public:
  /// Makes the file where there is none, for its owner alone, and brings an older one up to date. Rows with states or
  /// places that there are none of get likely ones, with an event: they would stop everybody's questions. One process
  /// at a time: Error(kUnsupported) names the one that has it open.
  static Catalog open(const std::filesystem::path& path, CatalogOptions options = {});
  /// A copy of the catalog at `path`, as it is at one moment, in a new file that only its owner can read: whether or
  /// not a service works with it. Error(kInvalidArgument) where there is such a file, kNotFound where there is no
  /// catalog, otherwise as open().
  static void back_up(const std::filesystem::path& path, const std::filesystem::path& copy);
  /// Adds to such a copy the archives of code that its jobs need which have not ended. `place` names their files.
  static BackedUpCode add_code(const std::filesystem::path& copy, const CodePlace& place);
  /// To read beside the one that is open, in this process: of the changes that are made there, it sees those that are
  /// complete. Error(kTimeout) where that one could be opened only for itself, because the disk was full.
  static Catalog open_to_read(const std::filesystem::path& path);
  /// Of one that was opened so: from now on until end_reading() it shows the same moment.
  void begin_reading();
  void end_reading();
  ~Catalog();
  Catalog(Catalog&& other) noexcept;
  Catalog& operator=(Catalog&& other) = delete;
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  Workspaces workspaces() { return Workspaces(*store_); }
  Experiments experiments() { return Experiments(*store_); }
  Clusters clusters() { return Clusters(*store_); }
  Nodes nodes() { return Nodes(*store_); }
  Jobs jobs() { return Jobs(*store_); }
  Attempts attempts() { return Attempts(*store_); }
  Events events() { return Events(*store_); }
  Users users() { return Users(*store_); }

  Unconfirmed unconfirmed();

  /// Nothing, unless this is a copy that back_up() has made, until end_restore().
  std::optional<BackupMark> restored();
  /// From now on numbers of events are none that the original may have used since.
  void skip_numbers();
  /// The archives that came with the copy, each written to the place that `place` names; those that it has already are
  /// left out. They are taken out of the catalog.
  void take_code(const CodePlace& place);
  /// What had been running is known.
  void end_restore();
  /// For how long nodes go on without a service; written down for backups.
  void note_lease(std::int64_t lease_ms);

  /// Makes one change of all that `work` does; when it throws, nothing is changed. For many changes at once, which
  /// share the wait for the disk.
  void together(const std::function<void()>& work);

  /// How many rows all questions so far have been answered with: what they cost.
  std::uint64_t rows_read() const;

 private:
  explicit Catalog(std::unique_ptr<Store> store);

  std::unique_ptr<Store> store_;
};

}  // namespace gyre::jobs::catalog
