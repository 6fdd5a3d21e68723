/* Which clients may use an export, and under which identity. */
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "export/exports_internal.h"
#include "loop/loop.h"

#define REFUSAL_NS (600 * HF_NS_PER_S) /* at most one line in this time for each host, export and rule */

static inline bool is_client(const struct hf_client_rule *client, const struct hf_addr *peer)
{
	switch (client->kind) {
	case HF_CLIENT_NETWORK:
		return hf_network_contains(&client->network, peer);
	case HF_CLIENT_PRIVATE:
		return hf_addr_is_private(peer);
	case HF_CLIENT_ANY:
		return true;
	}
	return false;
}

static inline bool has_client(const struct hf_export_rule *rule, const struct hf_addr *peer)
{
	for (size_t i = 0; i < rule->n_clients; i++)
		if (is_client(&rule->clients[i], peer))
			return true;
	return false;
}

static inline int admit_by(const struct hf_export_rule *rule, const struct hf_addr *peer,
			   const struct hf_export_rule **rulep)
{
	if (rulep)
		*rulep = rule;
	return rule->secure && !hf_addr_has_reserved_port(peer) ? HF_REFUSED_PORT : HF_ADMITTED;
}

int hf_export_admit(const struct hf_export *export, const struct hf_addr *peer,
		    const struct hf_export_rule **rulep)
{
	const struct hf_export_settings *settings = &export->settings;

	for (size_t i = 0; i < settings->n_rules; i++) {
		const struct hf_export_rule *rule = &settings->rules[i];

		if (has_client(rule, peer))
			return admit_by(rule, peer, rulep);
	}
	if (rulep)
		*rulep = NULL;
	return HF_REFUSED_ADDRESS;
}

int hf_exports_admit(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = hf_exports_by_id(exports, export_id);

	return export ? hf_export_admit(export, peer, NULL) : HF_REFUSED_EXPORT;
}

/* An expired entry is reused. The table is bounded, so a peer that forges many addresses cannot fill the
 * log. */
static bool is_news(struct hf_exports *exports, const struct hf_refusal *refusal, uint64_t now)
{
	struct hf_refusal *vacant = NULL;

	for (size_t i = 0; i < HF_N_REFUSALS; i++) {
		struct hf_refusal *known = &exports->refusals[i];

		if (known->until <= now)
			vacant = known;
		else if (known->export == refusal->export && known->rule == refusal->rule &&
			 hf_addr_same_host(&known->host, &refusal->host))
			return false;
	}
	if (vacant)
		*vacant = *refusal;
	return vacant != NULL;
}

static const struct {
	const char *sentence;
	const char *key;
} refusal_texts[] = {
	[HF_REFUSED_ADDRESS] = { "client refused: its address is not among the export's clients", "clients" },
	[HF_REFUSED_PORT] = { "client refused: the export requires a source port below 1024", "secure" },
};

void hf_exports_log_refusal(struct hf_exports *exports, const struct hf_export *export,
			    const struct hf_addr *peer, int rule, const char *program, uint64_t now)
{
	struct hf_refusal refusal = { now + REFUSAL_NS, *peer, export->id, rule };
	char name[256], host[HF_ADDR_TEXT];
	bool news;

	pthread_mutex_lock(&exports->refusals_lock);
	news = is_news(exports, &refusal, now);
	pthread_mutex_unlock(&exports->refusals_lock);
	if (!news)
		return;
	hf_log_warn(refusal_texts[rule].sentence, "peer=%s export=%s rule=%s program=%s",
		    hf_addr_format_with_port(peer, host, sizeof(host)),
		    hf_log_quote(name, sizeof(name), export->settings.name, strlen(export->settings.name)),
		    refusal_texts[rule].key, program);
}

/* Squashing */

static void become_anonymous(const struct hf_export_rule *rule, struct hf_identity *identity)
{
	*identity = (struct hf_identity){ .uid = rule->anon_uid, .gid = rule->anon_gid };
}

/* Group 0 gives access to as much as user 0. */
static void squash_groups(const struct hf_export_rule *rule, struct hf_identity *identity)
{
	if (identity->gid == 0)
		identity->gid = rule->anon_gid;
	for (uint32_t i = 0; i < identity->n_gids; i++)
		if (identity->gids[i] == 0)
			identity->gids[i] = rule->anon_gid;
}

void hf_export_squash(const struct hf_export_rule *rule, const struct hf_identity *claimed,
		      struct hf_identity *identityp)
{
	enum hf_squash squash = rule->squash;

	if (!claimed || squash == HF_SQUASH_ALL || (squash == HF_SQUASH_ROOT && claimed->uid == 0)) {
		become_anonymous(rule, identityp);
		return;
	}
	*identityp = *claimed;
	if (squash == HF_SQUASH_ROOT)
		squash_groups(rule, identityp);
}
