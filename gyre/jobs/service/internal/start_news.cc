#include "gyre/jobs/service/internal/start_news.h"

namespace gyre::jobs::service {

std::string start_news(Ledger& ledger, catalog::Id job) {
  std::string news;
  catalog::EventFilter filter;
  filter.job = job;
  for (const catalog::Event& event : ledger.catalog.events().list(filter, {.newest_first = true}).items) {
    if (event.subject == "attempt") return news;
    if (event.reason == "prepared") return {};
    if (event.reason == "note" && news.empty()) news = event.message;
  }
  return news;
}

}  // namespace gyre::jobs::service
