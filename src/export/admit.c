/* Which clients may use an export, and under which identity. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/macros.h"
#include "export/exports_internal.h"
#include "export/client_names.h"
#include "loop/loop.h"
#include "tls/tls.h"

#define MAX_PATIENT 2 /* of the threads for files; the others serve other clients meanwhile */
#define PATIENCE_NS (2 * HF_NS_PER_S)
#define REFUSAL_NS  (600 * HF_NS_PER_S) /* at most one line in this time for each host, export and rule */

static inline bool is_client(const struct hf_client_rule *client, const struct hf_addr *peer)
{
	switch (client->kind) {
	case HF_CLIENT_NETWORK:
		return hf_network_contains(&client->network, peer);
	case HF_CLIENT_PRIVATE:
		return hf_addr_is_private(peer);
	case HF_CLIENT_ANY:
		return true;
	case HF_CLIENT_HOST:
	case HF_CLIENT_DOMAIN:
		break; /* has_named_client() */
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

static enum hf_named ask_name(struct hf_client_names *names, const struct hf_client_rule *client,
			      const struct hf_addr *peer)
{
	if (client->kind == HF_CLIENT_HOST)
		return hf_client_names_is_host(names, client->text, peer);
	if (client->kind == HF_CLIENT_DOMAIN)
		return hf_client_names_is_in_domain(names, client->text, peer);
	return HF_NAMED_NO;
}

/* UNKNOWN: *unknownp, if wanted, is the client of the rule that is not known yet. All names are asked, so
 * that the look-ups run together. */
static HF_NOINLINE enum hf_named has_named_client(struct hf_client_names *names,
						  const struct hf_export_rule *rule,
						  const struct hf_addr *peer,
						  const struct hf_client_rule **unknownp)
{
	enum hf_named answer = HF_NAMED_NO;

	for (size_t i = 0; i < rule->n_clients; i++) {
		switch (ask_name(names, &rule->clients[i], peer)) {
		case HF_NAMED_YES:
			return HF_NAMED_YES;
		case HF_NAMED_UNKNOWN:
			answer = HF_NAMED_UNKNOWN;
			if (unknownp)
				*unknownp = &rule->clients[i];
			break;
		case HF_NAMED_NO:
			break;
		}
	}
	return answer;
}

static inline int admit_by(const struct hf_export_rule *rule, const struct hf_addr *peer,
			   const struct hf_export_rule **rulep)
{
	if (rulep)
		*rulep = rule;
	return rule->secure && !hf_addr_has_reserved_port(peer) ? HF_REFUSED_PORT : HF_ADMITTED;
}

/* A rule that may have the client hides those after it: they may give more. */
int hf_export_admit(const struct hf_export *export, const struct hf_addr *peer,
		    const struct hf_export_rule **rulep)
{
	const struct hf_export_settings *settings = &export->settings;
	enum hf_named named = HF_NAMED_NO;

	for (size_t i = 0; i < settings->n_rules && named == HF_NAMED_NO; i++) {
		const struct hf_export_rule *rule = &settings->rules[i];

		if (has_client(rule, peer))
			return admit_by(rule, peer, rulep);
		if (HF_UNLIKELY(rule->has_names))
			named = has_named_client(export->names, rule, peer, NULL);
		if (named == HF_NAMED_YES)
			return admit_by(rule, peer, rulep);
	}
	if (rulep)
		*rulep = NULL;
	return named == HF_NAMED_UNKNOWN ? HF_REFUSED_UNKNOWN : HF_REFUSED_ADDRESS;
}

/* The client of a rule that must be looked up first; NULL: there is none. */
static const struct hf_client_rule *find_unknown(const struct hf_export *export, const struct hf_addr *peer)
{
	const struct hf_export_settings *settings = &export->settings;
	const struct hf_client_rule *unknown = NULL;

	for (size_t i = 0; i < settings->n_rules; i++) {
		if (has_client(&settings->rules[i], peer))
			return NULL;
		switch (has_named_client(export->names, &settings->rules[i], peer, &unknown)) {
		case HF_NAMED_YES:
			return NULL;
		case HF_NAMED_UNKNOWN:
			return unknown;
		case HF_NAMED_NO:
			break;
		}
	}
	return NULL;
}

/* Each look-up that is waited for leads to an answer, or to the next one. */
static void await_names(const struct hf_export *export, const struct hf_addr *peer)
{
	const struct hf_client_rule *unknown;

	for (uint64_t ns = PATIENCE_NS; ns && (unknown = find_unknown(export, peer)); ns /= 2)
		hf_client_names_wait(export->names, unknown->kind == HF_CLIENT_HOST ? unknown->text : NULL,
				     peer, ns);
}

int hf_exports_admit_patiently(struct hf_exports *exports, const struct hf_export *export,
			       const struct hf_addr *peer)
{
	int answer = hf_export_admit(export, peer, NULL);

	if (answer != HF_REFUSED_UNKNOWN)
		return answer;
	if (atomic_fetch_add(&exports->n_patient, 1) < MAX_PATIENT)
		await_names(export, peer);
	atomic_fetch_sub(&exports->n_patient, 1);
	return hf_export_admit(export, peer, NULL);
}

static bool is_listed(const struct hf_export_settings *settings, const char *name)
{
	for (size_t i = 0; i < settings->n_identities; i++)
		if (strcasecmp(settings->identities[i], name) == 0)
			return true;
	return false;
}

/* The name of the certificate by which the export knows the client; NULL: none. */
static const char *name_in(const struct hf_export_settings *settings, const struct hf_tls_peer *tls)
{
	for (size_t i = 0; i < tls->n_names; i++)
		if (settings->n_identities == 0 || is_listed(settings, tls->names[i]))
			return tls->names[i];
	return NULL;
}

int hf_export_admit_transport(const struct hf_export *export, const struct hf_tls_peer *tls)
{
	const struct hf_export_settings *settings = &export->settings;

	if (HF_LIKELY(settings->transport == HF_TRANSPORT_ANY))
		return HF_ADMITTED;
	if (!tls || (settings->transport == HF_TRANSPORT_MTLS && !tls->is_authenticated))
		return HF_REFUSED_TRANSPORT;
	return settings->n_identities == 0 || name_in(settings, tls) ? HF_ADMITTED : HF_REFUSED_IDENTITY;
}

int hf_exports_admit_transport(struct hf_exports *exports, uint64_t export_id, const struct hf_tls_peer *tls,
			       char name[static HF_TLS_MAX_NAME + 1])
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = hf_exports_by_id(exports, export_id);
	const char *known;

	*name = '\0';
	if (!export)
		return HF_REFUSED_EXPORT;
	known = export->settings.transport == HF_TRANSPORT_MTLS ? name_in(&export->settings, tls) : NULL;
	if (known)
		snprintf(name, HF_TLS_MAX_NAME + 1, "%s", known);
	return hf_export_admit_transport(export, tls);
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
	[HF_REFUSED_TRANSPORT] = { "client refused: the export requires TLS, or a certificate that the "
				   "client does not have; mount with xprtsec=tls or xprtsec=mtls",
				   "transport" },
	[HF_REFUSED_UNKNOWN] = { "client refused for now: the names of the export's clients are not looked "
				 "up "
				 "yet",
				 "clients" },
	[HF_REFUSED_IDENTITY] = { "client refused: no name of its certificate is among the export's "
				  "identities",
				  "identities" },
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

void hf_exports_log_refusal_in(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer,
			       int rule, const char *program, uint64_t now)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = hf_exports_by_id(exports, export_id);

	if (export)
		hf_exports_log_refusal(exports, export, peer, rule, program, now);
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

void hf_export_squash(const struct hf_export_rule *rule, const struct hf_identity *given,
		      struct hf_identity *identityp)
{
	enum hf_squash squash = rule->squash;

	if (!given || squash == HF_SQUASH_ALL || (squash == HF_SQUASH_ROOT && given->uid == 0)) {
		become_anonymous(rule, identityp);
		return;
	}
	*identityp = *given;
	if (squash == HF_SQUASH_ROOT)
		squash_groups(rule, identityp);
}

/* Groups */

static int find_groups(struct hf_exports *exports, struct hf_groups *groups, uint32_t uid, bool may_wait,
		       const struct hf_group_list **listp)
{
	int r = hf_groups_find(groups, uid, listp);

	if (r != -EAGAIN || !may_wait)
		return r;
	if (atomic_fetch_add(&exports->n_patient, 1) < MAX_PATIENT)
		hf_groups_wait(groups, uid, PATIENCE_NS);
	atomic_fetch_sub(&exports->n_patient, 1);
	return hf_groups_find(groups, uid, listp);
}

/* Neither the anonymous user nor root needs groups. */
int hf_exports_identify(struct hf_exports *exports, const struct hf_export_rule *rule,
			const struct hf_identity *given, bool may_wait, struct hf_identity *identityp)
{
	struct hf_groups *groups = hf_exports_groups(exports);
	const struct hf_group_list *list;
	int r;

	hf_export_squash(rule, given, identityp);
	if (HF_LIKELY(!groups) || !given || given->uid == 0 || rule->squash == HF_SQUASH_ALL)
		return 0;
	r = find_groups(exports, groups, given->uid, may_wait, &list);
	if (r == 0) {
		identityp->n_gids = 0;
		identityp->list = list;
		identityp->list_id = list->id;
	}
	return r;
}
