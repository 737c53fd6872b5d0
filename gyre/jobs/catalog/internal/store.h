#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/base/file.h"
#include "gyre/jobs/catalog/internal/database.h"
#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

/// What all parts of a catalog share. `lock` is given back last.
class Store {
 public:
  Store(UniqueFd file_lock, const std::filesystem::path& path, std::function<TimeUs()> clock,
        Database::Access access = Database::Access::kWrite)
      : lock(std::move(file_lock)), database(path, access), now(std::move(clock)) {}

  UniqueFd lock;
  Database database;
  std::function<TimeUs()> now;
};

/// Writes the event, with the time of now.
void record(Store& store, const Event& event);

Error not_found(std::string_view what, std::string_view name);
Error not_found(std::string_view what, Id id);
/// "job 'x' cannot change from succeeded to running"
Error illegal_change(std::string_view what, std::string_view name, std::string_view from, std::string_view to);

/// Random and unique, in the form of RFC 4122 version 4.
std::string new_uuid();

/// "SELECT … AND id > ?1 ORDER BY id LIMIT ?2", or its opposite: `select` has a WHERE, ?1 is page_start(), ?2
/// page_rows().
std::string paged(std::string_view select, const PageRequest& request, std::string_view key = "id");
Id page_start(const PageRequest& request);
/// One more than the page has, to learn whether there is another one. Error(kInvalidArgument) for a limit out of range.
int page_rows(const PageRequest& request);

/// The page of a query: `read` makes an item of a row, `key` is the item's number.
template <typename Item, typename Read, typename Key>
Page<Item> read_page(Query& query, const PageRequest& request, Read read, Key key) {
  Page<Item> page;
  while (query.next()) {
    if (static_cast<int>(page.items.size()) == page_rows(request) - 1) {
      page.next = key(page.items.back());
      break;
    }
    page.items.push_back(read(query));
  }
  return page;
}

}  // namespace gyre::jobs::catalog
