/* extract_xml.h: XML as events, for the readers of its vocabularies. */
#ifndef CHIMERE_RETRIEVAL_EXTRACT_XML_H
#define CHIMERE_RETRIEVAL_EXTRACT_XML_H

#include "retrieval/extract_impl.h"

struct _xmlTextReader;

/* Names are without their prefix. An empty element begins and ends. */
struct xml_events {
    void (*begin)(void *ud, struct _xmlTextReader *r, const char *name);
    void (*end)(void *ud, const char *name);
    void (*text)(void *ud, const char *s);
    void *ud; /* borrowed until the walk ends */
};

int extract_xml_walk(const char *data, size_t n, const struct xml_events *v, struct err *e);
/* In begin: the value of an attribute, its name without prefix. False: none, or longer than size - 1. */
bool extract_xml_attribute(struct _xmlTextReader *r, const char *name, char *out, size_t size);

#endif
