#include "gyre/jobs/catalog/internal/secrets.h"

#include <algorithm>

namespace gyre::jobs::catalog {

void keep_secrets(Store& store, const SecretOwner& owner, const std::vector<Secret>& secrets) {
  for (const Secret& secret : secrets) {
    if (std::ranges::count(secrets, secret.name, &Secret::name) > 1) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("there are two secrets '{}'", secret.name));
    }
    store.database.run("INSERT INTO secrets (cluster_id, job_id, name, value) VALUES (?1, ?2, ?3, ?4)", owner.cluster,
                       owner.job, secret.name, secret.value);
  }
}

std::vector<Secret> read_secrets(Store& store, const SecretOwner& owner) {
  Query query(store.database, "SELECT name, value FROM secrets WHERE cluster_id = ?1 OR job_id = ?2 ORDER BY id",
              owner.cluster, owner.job);
  std::vector<Secret> found;
  while (query.next()) found.push_back({query.text(0), query.text(1)});
  return found;
}

}  // namespace gyre::jobs::catalog
